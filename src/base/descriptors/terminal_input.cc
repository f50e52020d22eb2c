#include "base/descriptors/terminal_input.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "base/syscall.h"

namespace gpuckpt {
namespace {

constexpr uint32_t kExternalProcessing = 0200000;  // EXTPROC
constexpr uint8_t kStopped = TIOCPKT_STOP, kStarted = TIOCPKT_START;

bool ends_line(uint8_t c, const KernelTermios& s) {
  return c == '\n' || (c && c == s.cc[VEOL]) || (c && c == s.cc[VEOL2] && s.lflag & IEXTEN);
}

// A character that the input does not have and that ends no line, from `from` on.
uint8_t unused_character(const char* input, uint32_t bytes, const KernelTermios& s, uint8_t from) {
  for (uint8_t c = from; c; ++c) {
    bool used = ends_line(c, s);
    for (uint32_t i = 0; i < bytes && !used; ++i) used = static_cast<uint8_t>(input[i]) == c;
    if (!used) return c;
  }
  return 0;
}

bool write_all(int fd, const char* from, uint32_t bytes) {
  return sys::write(fd, from, bytes) == static_cast<long>(bytes);
}

// The kernel takes what the master has written a moment later, and tells of no half line. That it
// has come to the stop character behind it, and to the start character behind that, is told to a
// master in packet mode. It wakes only processes that wait for input, and there may be input: so
// this looks again and again.
bool wait_until_taken(int master, uint8_t wanted) {
  constexpr uint64_t kPatienceUs = 1'000'000;
  for (const uint64_t until = sys::now_us() + kPatienceUs; sys::now_us() < until;) {
    pollfd p{master, POLLPRI, 0};
    sys::Timespec pause{0, 50'000};
    uint8_t status = 0;
    if (sys::call(SYS_ppoll, sys::ptr(&p), 1, sys::ptr(&pause), 0, 8) != 1) continue;
    if (sys::read(master, &status, 1) != 1) return false;
    if (status & wanted) return true;
  }
  return false;
}

}  // namespace

bool reads_lines(const KernelTermios& s) {
  return (s.lflag & (ICANON | kExternalProcessing)) == ICANON;
}

uint32_t complete_lines(const char* input, uint32_t bytes, uint32_t readable,
                        const KernelTermios& settings) {
  uint32_t found = 0, zeros = 0;
  for (uint32_t i = 0; i < bytes; ++i) {
    const uint8_t c = static_cast<uint8_t>(input[i]);
    zeros += c == 0;
    if ((c == 0 || ends_line(c, settings)) && i + 1 - zeros == readable) found = i + 1;
  }
  return found;
}

bool put_lines(int master, int slave, const KernelTermios& settings, const char* input,
               uint32_t bytes, uint32_t complete, bool stop) {
  KernelTermios lines = settings;
  lines.iflag = IXON, lines.oflag = 0, lines.lflag = ICANON | (settings.lflag & IEXTEN);
  for (uint8_t& c : lines.cc) c = 0;
  lines.cc[VEOL] = settings.cc[VEOL], lines.cc[VEOL2] = settings.cc[VEOL2];
  const uint8_t end_of_file = unused_character(input, bytes, lines, 1);
  const uint8_t stops =
      unused_character(input, bytes, lines, static_cast<uint8_t>(end_of_file + 1));
  const uint8_t starts = unused_character(input, bytes, lines, static_cast<uint8_t>(stops + 1));
  if (!end_of_file || !stops || !starts) return false;
  lines.cc[VEOF] = end_of_file, lines.cc[VSTOP] = stops, lines.cc[VSTART] = starts;
  const int on = 1, off = 0;
  if (sys::failed(sys::call(SYS_ioctl, slave, kSetTerminalSettings, sys::ptr(&lines))) ||
      sys::failed(sys::call(SYS_ioctl, master, TIOCPKT, sys::ptr(&on))))
    return false;
  bool whole = true;
  for (uint32_t i = 0, from = 0; i <= bytes && whole; ++i) {
    const bool mark = i < complete && !input[i];
    if (i < bytes && !mark) continue;
    whole = write_all(master, input + from, i - from);
    if (mark) whole = whole && write_all(master, reinterpret_cast<const char*>(&end_of_file), 1);
    from = i + 1;
  }
  whole = whole && write_all(master, reinterpret_cast<const char*>(&stops), 1) &&
          wait_until_taken(master, kStopped);
  if (whole && !stop)
    whole = write_all(master, reinterpret_cast<const char*>(&starts), 1) &&
            wait_until_taken(master, kStarted);
  sys::call(SYS_ioctl, master, TIOCPKT, sys::ptr(&off));
  return whole;
}

}  // namespace gpuckpt
