#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/descriptors/terminal_input.h"
#include "restore/descriptors/fd_maker.h"

namespace gpuckpt::restore {

using namespace process;

namespace {

constexpr unsigned long kSetSettings = kSetTerminalSettings;
constexpr int kLargeFile = 0100000;  // open() sets it, the ioctl that opens a slave does not
constexpr unsigned long kLock = 0x40045431, kGetNumber = 0x80045430, kOpenSlave = 0x5441;

int open_master() { return open("/dev/ptmx", O_RDWR | O_NOCTTY); }

// Opens the masters of terminals with these numbers, by number; -1: with errno. Numbers are
// assigned from the lowest free one: terminals that come with others are held until all wanted ones
// have come, and take the place of those that are not free.
std::map<uint32_t, int> open_masters(const std::set<uint32_t>& numbers) {
  std::map<uint32_t, int> found;
  std::vector<int> held;
  for (int fd; found.size() < numbers.size() && (fd = open_master()) >= 0;) {
    uint32_t got = 0;
    if (ioctl(fd, kGetNumber, &got) == 0 && numbers.count(got)) {
      found[got] = fd;
      continue;
    }
    held.push_back(fd);
    if (got > *numbers.rbegin()) break;
  }
  for (uint32_t number : numbers) {
    if (found.count(number)) continue;
    found[number] = held.empty() ? open_master() : held.back();
    if (!held.empty()) held.pop_back();
  }
  for (int fd : held) close(fd);
  return found;
}

// All terminals that the machine allows may be in use for a moment: by another restore, or by stale
// processes of the killed program.
bool open_masters_patiently(const std::set<uint32_t>& numbers, std::map<uint32_t, int>* out) {
  constexpr int kTries = 80;  // of 100 ms
  for (int i = 0;; ++i) {
    *out = open_masters(numbers);
    const int error = errno;
    const bool all = std::all_of(out->begin(), out->end(), [](auto& m) { return m.second >= 0; });
    if (all) return true;
    for (const auto& [number, fd] : *out)
      if (fd >= 0) close(fd);
    errno = error;
    if (error != ENOSPC || i == kTries) return false;
    usleep(100'000);
  }
}

// Sets owner, group and mode of the slave's file, which is opened for this only where it stays open
// anyway. What is not permitted is left unchanged.
void set_owner(int slave, uint32_t number, const process::Terminal& t) {
  if (!t.mode) return;
  const std::string path =
      slave >= 0 ? "/proc/self/fd/" + std::to_string(slave) : "/dev/pts/" + std::to_string(number);
  struct stat st;
  if (stat(path.c_str(), &st) != 0) return;
  if (st.st_uid != t.uid || st.st_gid != t.gid) (void)!chown(path.c_str(), t.uid, t.gid);
  if (st.st_mode != t.mode) chmod(path.c_str(), t.mode & 07777);
}

// The kernel passes what the master writes to the slave a moment later, with the settings of that
// moment.
bool wait_for_input(int slave, size_t wanted) {
  int waiting = 0;
  for (int i = 0; slave >= 0 && i < 2000; ++i, usleep(100))
    if (ioctl(slave, FIONREAD, &waiting) != 0 || static_cast<size_t>(waiting) >= wanted) break;
  return static_cast<size_t>(waiting) >= wanted;
}

// Stops the output that the program, or the user at its terminal, had stopped by a character. It is
// stopped by a character again, because after a call no character could start it. PRECONDITION: no
// unread input.
void stop_output(int master, int slave, KernelTermios raw, uint32_t how) {
  constexpr char kStopThenMark[] = {0x13, 'x'};  // when the mark is there, both have arrived
  if (how == process::kOutputStoppedByCall) ioctl(slave, TCXONC, TCOOFF);
  if (how != process::kOutputStoppedByCharacter) return;
  raw.iflag = IXON, raw.cc[VSTOP] = kStopThenMark[0];
  ioctl(master, kSetSettings, &raw);
  char mark;
  if (write(master, kStopThenMark, 2) == 2 && wait_for_input(slave, 1))
    (void)!read(slave, &mark, 1);
  raw.cc[VSTART] = raw.cc[VSTOP] = 0;  // (without IXON the output would continue)
  ioctl(master, kSetSettings, &raw);
}

// Makes a slave whose master is closed: it reads an end of file.
int make_hung_up_terminal(int flags) {
  Fd master(open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC));
  int off = 0;
  if (!master || ioctl(master.get(), kLock, &off) != 0) return -1;
  return ioctl(master.get(), kOpenSlave, flags | O_NOCTTY);
}

// Replaces the slave `fd` by the terminal as /dev/tty opens it. Only a process that it controls can
// do that: a process that shares our descriptors leads a session of its own meanwhile.
bool reopen_as_controlling_terminal(int fd, int flags) {
  const pid_t helper = static_cast<pid_t>(syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0));
  if (helper == 0) {
    signal(SIGHUP, SIG_IGN);  // for the end of its session, before it has ended itself
    if (setsid() < 0 || ioctl(fd, TIOCSCTTY, 0) != 0) _exit(1);
    const int opened = open("/dev/tty", flags | O_CLOEXEC);
    const bool replaced = opened >= 0 && dup3(opened, fd, O_CLOEXEC) == fd;
    close(opened);
    _exit(replaced ? 0 : 1);
  }
  int status = -1;
  while (helper > 0 && waitpid(helper, &status, 0) < 0 && errno == EINTR) {
  }
  return status == 0;
}

// Restores the unread input, and the stop of the output before it. `raw`: the present settings.
bool put_input(int master, int slave, const KernelTermios& saved, const KernelTermios& raw,
               const Image::Terminal& t) {
  const bool by_character = t.head.output_stopped == process::kOutputStoppedByCharacter;
  if (slave >= 0 && !t.input.empty() && reads_lines(saved)) {
    const bool whole =
        put_lines(master, slave, saved, reinterpret_cast<const char*>(t.input.data()),
                  static_cast<uint32_t>(t.input.size()), t.head.complete_bytes, by_character);
    if (!by_character) stop_output(master, slave, raw, t.head.output_stopped);
    return whole;
  }
  if (slave >= 0) stop_output(master, slave, raw, t.head.output_stopped);
  if (!t.input.empty() &&
      write(master, t.input.data(), t.input.size()) != static_cast<ssize_t>(t.input.size()))
    return false;
  if (slave >= 0) wait_for_input(slave, t.input.size());
  return true;
}

}  // namespace

bool FdMaker::prepare_terminals() {
  std::set<uint32_t> numbers;
  for (const Image::Terminal& t : image_.terminals) numbers.insert(t.head.number);
  std::map<uint32_t, int> masters;
  errno = 0;
  if (!open_masters_patiently(numbers, &masters))
    return fail(errno == ENOSPC
                    ? "not all pseudo terminals can be opened: others have as many as there "
                      "may be (kernel.pty.max, or the mount option max of devpts)"
                    : "not all pseudo terminals can be opened");
  for (const Image::Terminal& t : image_.terminals) {
    errno = 0;
    int master = up(masters[t.head.number]);
    uint32_t number = 0;
    ioctl(master, kGetNumber, &number);
    if (number != t.head.number)
      warn("/dev/pts/" + std::to_string(t.head.number) + " is /dev/pts/" + std::to_string(number) +
           " now");
    int off = 0, locked = static_cast<int>(t.head.locked),
        packets = (t.head.packets & kTerminalPackets) != 0;
    ioctl(master, kLock, &off);
    int slave = -1;
    // Another process may have the slave; or it is closed again, which hangs the master up.
    bool used = !t.input.empty() || !t.output.empty() || t.head.packets & kTerminalHungUp;
    for (const auto& [d, path] : image_.fds)
      used |= d.kind == kFdTerminal && d.value[1] == t.head.number + 1;
    if (used) slave = up(ioctl(master, kOpenSlave, O_RDWR | O_NOCTTY));
    KernelTermios saved{}, raw{};
    memcpy(&saved, t.head.settings, sizeof(saved));
    raw = saved;
    raw.iflag = raw.oflag = raw.lflag = 0;
    if (t.head.settings_bytes) ioctl(master, kSetSettings, &raw);
    bool whole =
        slave < 0 || t.output.empty() ||
        write(slave, t.output.data(), t.output.size()) == static_cast<ssize_t>(t.output.size());
    if (!whole || !put_input(master, slave, saved, raw, t))
      return fail("the unread bytes of a pseudo terminal cannot be put back");
    set_owner(slave, number, t.head);
    if (t.head.settings_bytes) ioctl(master, kSetSettings, &saved);
    ioctl(master, TIOCSWINSZ, t.head.window);
    if (packets) ioctl(master, TIOCPKT, &packets);
    if (locked) ioctl(master, kLock, &locked);
    terminals_[static_cast<int>(t.head.index)] = {master, slave};
  }
  return true;
}

int FdMaker::make_terminal(const Descriptor& d) {
  const int flags = static_cast<int>(d.flags) & (O_ACCMODE | O_NONBLOCK | O_APPEND | kLargeFile);
  int fd = -1;
  if (d.kind == kFdPtyMaster) {
    fd = dup(terminals_[d.object].first);
    if (fd >= 0) fcntl(fd, F_SETFL, flags & O_NONBLOCK);
    return fd;
  }
  if (d.value[3]) return make_hung_up_terminal(flags);
  for (const Image::Terminal& t : image_.terminals)
    if (d.value[1] == t.head.number + 1) {
      int master = terminals_[static_cast<int>(t.head.index)].first, off = 0;
      ioctl(master, kLock, &off);
      fd = ioctl(master, kOpenSlave, flags | O_NOCTTY);
      int locked = static_cast<int>(t.head.locked);
      if (locked) ioctl(master, kLock, &locked);
      const bool as_controlling = d.value[2] != 0;
      if (fd >= 0 && as_controlling && !reopen_as_controlling_terminal(fd, flags)) {
        close(fd);
        return -1;
      }
      return fd;
    }
  fd = outside(d);
  if (fd < 0 && d.fd <= 2) fd = inherit(d.fd);
  if (fd < 0) fd = open("/dev/tty", flags);
  if (fd < 0) {
    warn(describe(d, "") + " was a terminal; it is /dev/null now");
    fd = open("/dev/null", O_RDWR);
  }
  return fd;
}

}  // namespace gpuckpt::restore
