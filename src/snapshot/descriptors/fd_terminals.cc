// Character devices: those of memory by name, terminals from the launcher, and pseudo terminals
// whose master is inside the program, which are made anew with their settings and unread bytes.

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <termios.h>

#include "base/descriptors/terminal_input.h"
#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/descriptors/descriptors.h"
#include "snapshot/job/barrier.h"
#include "snapshot/process/warnings.h"

namespace gpuckpt {

using namespace process;

namespace {

constexpr long kGetSettings = kGetTerminalSettings, kSetSettings = kSetTerminalSettings;
constexpr long kGetNumber = 0x80045430, kOpenSlave = 0x5441;  // TIOCGPTN, TIOCGPTPEER

constexpr dev_t kDevTty = 5 << 8;
constexpr unsigned kKernelLog = 11;  // /dev/kmsg, among the memory devices
constexpr char kStopCharacter = 0x13;
constexpr uint64_t kPatienceUs = 200000;

// Makes a descriptor's calls return at once, for as long as it lives: all threads are parked, and a
// call that blocked here would stop the program for good.
class NoWait {
 public:
  explicit NoWait(int fd) : fd_(fd), before_(sys::call(SYS_fcntl, fd, F_GETFL)) {
    sys::call(SYS_fcntl, fd_, F_SETFL, before_ | O_NONBLOCK);
  }
  ~NoWait() { sys::call(SYS_fcntl, fd_, F_SETFL, before_); }

 private:
  int fd_;
  long before_;
};

// A process in the background of its controlling terminal cannot read it: it is in the foreground
// for as long as this lives. Where the foreground group has no process left, it could not be put
// back, and nothing is done.
class InForeground {
 public:
  explicit InForeground(int slave) : slave_(slave) {
    const long own = sys::call(SYS_getpgid, 0);
    if (sys::failed(sys::call(SYS_ioctl, slave, TIOCGPGRP, sys::ptr(&before_))) || before_ <= 0 ||
        before_ == own || sys::failed(sys::call(SYS_kill, -before_, 0)))
      return;
    const int group = static_cast<int>(own);
    changed_ = !sys::failed(sys::call(SYS_ioctl, slave, TIOCSPGRP, sys::ptr(&group)));
  }
  bool readable() const {
    int now = 0;
    return sys::failed(sys::call(SYS_ioctl, slave_, TIOCGPGRP, sys::ptr(&now))) || now <= 0 ||
           now == sys::call(SYS_getpgid, 0);
  }
  ~InForeground() {
    if (changed_) sys::call(SYS_ioctl, slave_, TIOCSPGRP, sys::ptr(&before_));
  }

 private:
  int slave_, before_ = 0;
  bool changed_ = false;
};

// Reads all that waits at `fd`.
uint32_t read_all(int fd, char* to, uint32_t room) {
  uint32_t n = 0;
  for (long got; n < room && (got = sys::read(fd, to + n, room - n)) > 0;)
    n += static_cast<uint32_t>(got);
  return n;
}

// Whether what the slave writes is held back. The kernel does not tell, but takes nothing then.
// What comes before the byte that is tried with (the echo of characters that were held back) is
// added to the unread output. PRECONDITION: no processing of output.
bool output_is_stopped(int master, int slave, char* output, Terminal* out) {
  const char mark = 0;
  if (sys::write(slave, &mark, 1) != 1) return true;
  for (const uint64_t patience = sys::now_us() + kPatienceUs; sys::now_us() < patience;) {
    const uint32_t n = read_all(master, output + out->output_bytes,
                                CaptureScratch::kTerminalBytes - out->output_bytes);
    out->output_bytes += n;
    if (n && output[out->output_bytes - 1] == mark) {
      --out->output_bytes;
      break;
    }
    sys::sleep_us(50);
  }
  return false;
}

bool set_settings(int slave, const KernelTermios& settings) {
  return !sys::failed(sys::call(SYS_ioctl, slave, kSetSettings, sys::ptr(&settings)));
}

// The kernel hands what the master writes to the slave a moment later: not before is anything done
// that would change how it is taken. (`wanted` bytes, all of them unread.)
bool wait_for_input(int slave, uint32_t wanted) {
  int waiting = 0;
  for (const uint64_t patience = sys::now_us() + kPatienceUs; sys::now_us() < patience;
       sys::sleep_us(100)) {
    sys::call(SYS_ioctl, slave, FIONREAD, sys::ptr(&waiting));
    if (static_cast<uint32_t>(waiting) >= wanted) return true;
  }
  return false;
}

// Resumes the slave's output, and says what had stopped it. `raw`: settings without processing, but
// with IXON as the program has it, for the kernel resumes output when that is switched off.
uint32_t start_output(int master, int slave, const KernelTermios& raw, char* output,
                      Terminal* out) {
  if (!output_is_stopped(master, slave, output, out)) return kOutputRuns;
  KernelTermios without = raw;
  without.iflag = 0;
  if (raw.iflag && set_settings(slave, without) && !output_is_stopped(master, slave, output, out))
    return kOutputStoppedByCharacter;
  sys::call(SYS_ioctl, slave, TCXONC, TCOON);
  output_is_stopped(master, slave, output, out);
  return kOutputStoppedByCall;
}

// Puts the unread input back, and the stop of the output.
bool put_input_back(int master, int slave, const KernelTermios& settings, const KernelTermios& raw,
                    const Terminal& out, const char* input) {
  if (out.input_bytes && reads_lines(settings)) {
    if (!put_lines(master, slave, settings, input, out.input_bytes, out.complete_bytes,
                   out.output_stopped == kOutputStoppedByCharacter))
      return false;
    if (out.output_stopped == kOutputStoppedByCall) sys::call(SYS_ioctl, slave, TCXONC, TCOOFF);
    return true;
  }
  char extra = kStopCharacter;
  const bool by_character = out.output_stopped == kOutputStoppedByCharacter;
  if (by_character) {  // as it came: a call would stop it so that no character starts it again
    KernelTermios stops = raw;
    stops.iflag = IXON, stops.cc[VSTOP] = kStopCharacter;
    if (!set_settings(slave, stops) || sys::write(master, &extra, 1) != 1) return false;
    if (!out.input_bytes && (sys::write(master, "x", 1) != 1 || !wait_for_input(slave, 1)))
      return false;
    if (!out.input_bytes) sys::read(slave, &extra, 1);
  }
  if (sys::write(master, input, out.input_bytes) != static_cast<long>(out.input_bytes) ||
      !wait_for_input(slave, out.input_bytes))
    return false;
  if (out.output_stopped == kOutputStoppedByCall) sys::call(SYS_ioctl, slave, TCXONC, TCOOFF);
  return true;
}

// What is unread can only be seen by reading. It is written back at once through the other end,
// with all processing switched off meanwhile; no other thread looks, all are parked.
bool take_contents(FdTable* t, int master, int slave, const KernelTermios& settings,
                   Terminal* out) {
  char* input = t->c->scratch->terminal_input;
  char* output = t->c->scratch->terminal_output;
  int in = 0, of = 0;
  sys::call(SYS_ioctl, slave, FIONREAD, sys::ptr(&in));
  sys::call(SYS_ioctl, master, FIONREAD, sys::ptr(&of));
  // In line mode FIONREAD counts whole lines only, so reading has to show what is there.
  KernelTermios raw = settings;
  raw.iflag = settings.iflag & IXON;
  raw.oflag = raw.lflag = 0;
  raw.cc[VTIME] = raw.cc[VMIN] = raw.cc[VSTART] = raw.cc[VSTOP] = 0;
  const NoWait reading(master), writing(slave);
  const InForeground allowed(slave);
  // Asked before anything is changed: a process that cannot read the terminal (from its background)
  // would find nothing.
  if (!allowed.readable())
    return t->c->refuse(
        "the terminal behind descriptor %d cannot be read from the background of its session; try "
        "again when the process that has its master is in the foreground, or close the terminal",
        master);
  if (!set_settings(slave, raw)) return true;
  out->input_bytes = read_all(slave, input, CaptureScratch::kTerminalBytes);
  if (reads_lines(settings))
    out->complete_bytes =
        complete_lines(input, out->input_bytes, static_cast<uint32_t>(in), settings);
  out->output_bytes = read_all(master, output, CaptureScratch::kTerminalBytes);
  out->output_stopped = start_output(master, slave, raw, output, out);
  bool ok = static_cast<uint32_t>(in) <= out->input_bytes &&
            sys::write(slave, output, out->output_bytes) == static_cast<long>(out->output_bytes) &&
            put_input_back(master, slave, settings, raw, *out, input);
  set_settings(slave, settings);
  return ok || t->c->refuse(
                   "the unread bytes of the pseudo terminal behind descriptor %d cannot be read "
                   "without losing some of them; read them first, or close the terminal",
                   master);
}

// The pseudo terminals whose slave is open in a process of the job, all of which are parked. The
// other processes are looked at once, for all terminals, and only when this one does not have it.
class OpenSlaves {
 public:
  explicit OpenSlaves(const FdTable& t) : numbers_(scratch_map(kNumbers / 8)) {
    for (size_t k = 0; k < t.count; ++k)
      if (t.all[k].kind == kFdTerminal && t.all[k].value[1]) add(t.all[k].value[1] - 1);
  }
  ~OpenSlaves() {
    if (numbers_) scratch_unmap(&numbers_);
  }
  OpenSlaves(const OpenSlaves&) = delete;
  OpenSlaves& operator=(const OpenSlaves&) = delete;
  bool ok() const { return static_cast<bool>(numbers_); }

  bool has(uint32_t number) {
    if (!is_noted(number) && !others_noted_) note_others();
    return is_noted(number);
  }

 private:
  static constexpr uint64_t kNumbers = 1 << 20;  // NR_UNIX98_PTY_MAX

  void add(uint64_t number) {
    if (number < kNumbers && ok())
      numbers_.data()[number / 8] |= static_cast<char>(1 << number % 8);
  }
  bool is_noted(uint32_t number) const {
    return number < kNumbers && ok() && numbers_.data()[number / 8] >> number % 8 & 1;
  }
  void note_others() {
    others_noted_ = true;
    const SharedJobState* b = job_barrier.active() ? job_barrier.shared_state() : nullptr;
    for (uint32_t i = 0; b && i < b->relative_count; ++i) {
      if (b->relative[i].pid == library.pid) continue;
      format(folder_, sizeof(folder_), "/proc/%d/fd", b->relative[i].pid);
      each_number_in(folder_, this, [](void* context, int fd) {
        static_cast<OpenSlaves*>(context)->note_descriptor(fd);
        return true;
      });
    }
  }
  void note_descriptor(int fd) {
    char link[64], to[64];
    format(link, sizeof(link), "%s/%d", folder_, fd);
    const long n = sys::call(SYS_readlinkat, AT_FDCWD, sys::ptr(link), sys::ptr(to), 63);
    to[n > 0 ? n : 0] = 0;
    constexpr char kSlaves[] = "/dev/pts/";
    if (!starts_with(to, kSlaves)) return;
    const char* number = to + sizeof(kSlaves) - 1;
    if (*number >= '0' && *number <= '9') add(scan_dec(&number));
  }

  Region numbers_;  // one bit for each
  bool others_noted_ = false;
  char folder_[40];
};

}  // namespace

bool capture_character_device(FdTable* t, Descriptor* d, const FdFacts& f) {
  const uint32_t major = static_cast<uint32_t>((f.st.st_rdev >> 8) & 0xfff);
  uint32_t number = 0;
  if (!sys::failed(sys::call(SYS_ioctl, d->fd, kGetNumber, sys::ptr(&number)))) {
    d->kind = kFdPtyMaster;
    uint32_t i = 0;
    while (i < t->terminals && t->terminal[i].number != number) ++i;
    if (i == FdTable::kMostTerminals)
      return t->c->refuse("more than %u pseudo terminals are open", i);
    if (i == t->terminals) t->terminal[t->terminals++] = {d->fd, -1, number};
    d->object = static_cast<int>(i);
    d->value[0] = number;
  } else if (major == 1) {
    d->kind = kFdDevice;
    d->value[0] = f.st.st_rdev;
    d->value[1] = f.deleted;
    if (f.deleted) put_attributes(t->c, t->r, d->fd, f.st);
    if (minor(f.st.st_rdev) == kKernelLog && (d->flags & O_ACCMODE) != O_WRONLY)
      add_warning(
          "descriptor %d reads the kernel's log (%s), which does not tell how far; a restored "
          "program reads it from its first message again",
          d->fd, f.path);
  } else if (major == 5 || major == 4 || (major >= 136 && major <= 143)) {
    d->kind = kFdTerminal;
    d->value[0] = ~0ull;
    if (f.st.st_rdev == kDevTty) {
      ProcStat stat;
      if (read_stat("/proc/thread-self/stat", &stat))
        d->value[1] = static_cast<uint64_t>(stat.pseudo_terminal());
      d->value[2] = 1;
    }
    if (major >= 136) d->value[1] = (major - 136) * 256 + minor(f.st.st_rdev) + 1;
    KernelTermios settings;
    constexpr long kHungUp = -5;  // EIO
    if (sys::call(SYS_ioctl, d->fd, kGetSettings, sys::ptr(&settings)) == kHungUp)
      d->value[1] = 0, d->value[3] = 1;
  } else {
    return t->c->refuse("descriptor %d is the device %s, which cannot be put back; close it first",
                        d->fd, f.path);
  }
  return true;
}

namespace {

// Owner and mode of the slave's file. By its name where it is not open: to open it would change
// what the master reads.
void put_slave_file(long slave, uint32_t number, Terminal* out) {
  char path[40];
  struct stat st;
  format(path, sizeof(path), "/dev/pts/%u", number);
  const long r = sys::failed(slave)
                     ? sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(path), sys::ptr(&st), 0)
                     : sys::call(SYS_fstat, slave, sys::ptr(&st));
  if (!sys::failed(r)) out->mode = st.st_mode, out->uid = st.st_uid, out->gid = st.st_gid;
}

// Does the master find what slaves have written, and then an error?
bool is_hung_up(int master) {
  pollfd one{master, 0, 0};
  sys::Timespec none{0, 0};
  return sys::call(SYS_ppoll, sys::ptr(&one), 1, sys::ptr(&none), 0, 8) == 1 &&
         one.revents & POLLHUP;
}

bool has_locked_settings(int master) {
  constexpr char kNone[64] = {};
  char locked[sizeof(kNone)] = {};  // struct termios, whose bits say what is locked
  return !sys::failed(sys::call(SYS_ioctl, master, TIOCGLCKTRMIOS, sys::ptr(locked))) &&
         __builtin_memcmp(locked, kNone, sizeof(kNone)) != 0;
}

// A program that set its terminal to raw mode, say, wants to find it so again.
void put_outside_terminals(FdTable* t) {
  for (size_t i = 0; i < t->count; ++i) {
    const Descriptor& d = t->all[i];
    if (d.kind != kFdTerminal || d.fd > 2) continue;
    OutsideTerminal out;
    __builtin_memset(&out, 0, sizeof(out));
    bool inside = false;
    for (uint32_t k = 0; k < t->terminals; ++k) inside |= d.value[1] == t->terminal[k].number + 1;
    if (inside || sys::failed(sys::call(SYS_ioctl, d.fd, kGetSettings, sys::ptr(out.settings))))
      continue;
    out.fd = d.fd;
    t->r->put(kRecOutsideTerminal, out);
    return;
  }
}

}  // namespace

bool put_terminals(FdTable* t) {
  put_outside_terminals(t);
  if (!t->terminals) return true;
  OpenSlaves open_slaves(*t);
  if (!open_slaves.ok()) return t->c->refuse("no memory for a table of terminals");
  for (uint32_t i = 0; i < t->terminals; ++i) {
    auto& p = t->terminal[i];
    Terminal out;
    __builtin_memset(&out, 0, sizeof(out));
    out.index = i;
    out.number = p.number;
    int locked = 0, packets = 0;
    sys::call(SYS_ioctl, p.master, 0x80045439 /* TIOCGPTLCK */, sys::ptr(&locked));
    sys::call(SYS_ioctl, p.master, 0x80045438 /* TIOCGPKT */, sys::ptr(&packets));
    out.locked = static_cast<uint32_t>(locked), out.packets = packets ? kTerminalPackets : 0u;
    const bool hung_up = is_hung_up(p.master);
    if (hung_up) out.packets |= kTerminalHungUp;
    sys::call(SYS_ioctl, p.master, TIOCGWINSZ, sys::ptr(out.window));
    int discipline = 0;
    sys::call(SYS_ioctl, p.master, TIOCGETD, sys::ptr(&discipline));
    if (discipline)
      return t->c->refuse(
          "the pseudo terminal behind descriptor %d has line discipline %d (TIOCSETD)", p.master,
          discipline);
    if (has_locked_settings(p.master))
      return t->c->refuse(
          "the settings of the pseudo terminal behind descriptor %d are locked (TIOCSLCKTRMIOS); "
          "unlock them",
          p.master);
    KernelTermios settings{};
    if (!sys::failed(sys::call(SYS_ioctl, p.master, kGetSettings, sys::ptr(&settings)))) {
      out.settings_bytes = sizeof(settings);
      __builtin_memcpy(out.settings, &settings, sizeof(settings));
      int off = 0;
      if (packets) sys::call(SYS_ioctl, p.master, TIOCPKT, sys::ptr(&off));
      // The last slave that closes hangs the master up: only where that has been so already, or
      // beside one that stays open.
      const bool open = hung_up || open_slaves.has(p.number);
      long slave =
          open ? sys::call(SYS_ioctl, p.master, kOpenSlave, O_RDWR | O_NOCTTY | O_CLOEXEC) : -1;
      // An exclusive one opens for root only: then the program's own has to do.
      for (size_t k = 0; open && k < t->count && sys::failed(slave); ++k)
        if (t->all[k].kind == kFdTerminal && t->all[k].value[1] == p.number + 1 &&
            (t->all[k].flags & O_ACCMODE) == O_RDWR)
          slave = sys::call(SYS_fcntl, t->all[k].fd, F_DUPFD_CLOEXEC, 0);
      if (!sys::failed(slave))
        sys::call(SYS_ioctl, slave, 0x80045440 /* TIOCGEXCL */, sys::ptr(&out.exclusive));
      put_slave_file(slave, p.number, &out);
      bool ok =
          sys::failed(slave) || take_contents(t, p.master, static_cast<int>(slave), settings, &out);
      if (!sys::failed(slave)) sys::close(static_cast<int>(slave));
      if (packets) sys::call(SYS_ioctl, p.master, TIOCPKT, sys::ptr(&packets));
      if (!ok) return false;
    }
    t->r->begin(kRecTerminal);
    t->r->add(&out, sizeof(out));
    t->r->add(t->c->scratch->terminal_input, out.input_bytes);
    t->r->add(t->c->scratch->terminal_output, out.output_bytes);
    t->r->end();
  }
  return true;
}

}  // namespace gpuckpt
