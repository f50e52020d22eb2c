#include "restore/pager/kernel_accesses.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace gpuckpt::restore {
namespace {

// One range that a call uses: argument `at` points to it.
struct Use {
  enum Kind : uint8_t {
    kNone,
    kFixed,    // `size` bytes
    kCounted,  // argument `by` times `size` bytes
    kInOut,    // as many bytes as the int says that argument `by` points to
    kText,     // a C string that is a path or a name
    kVector,   // argument `by` iovecs, and what they point to
    kMessage,  // a msghdr, and what it points to
    kMask,     // {pointer, bytes}, and the set of signals that it points to
  } kind = kNone;
  uint8_t at = 0, by = 0;
  uint16_t size = 0;
};
constexpr Use fixed(uint8_t at, uint16_t size) { return {Use::kFixed, at, 0, size}; }
constexpr Use counted(uint8_t at, uint8_t by, uint16_t size = 1) {
  return {Use::kCounted, at, by, size};
}
constexpr Use in_out(uint8_t at, uint8_t by) { return {Use::kInOut, at, by, 0}; }
constexpr Use text(uint8_t at) { return {Use::kText, at, 0, 0}; }
constexpr Use vector(uint8_t at, uint8_t by) { return {Use::kVector, at, by, 0}; }
constexpr Use message(uint8_t at) { return {Use::kMessage, at, 0, 0}; }
constexpr Use mask(uint8_t at) { return {Use::kMask, at, 0, 0}; }

struct Row {
  uint16_t number;
  std::array<Use, 4> uses;
};

// Sizes in bytes, from the manual pages and the kernel's headers for x86-64: timespec, timeval 16,
// itimerspec 32, sigset 8, sigaction 32, siginfo 128, sigevent 64, stat 144, statx 256, statfs 120,
// rusage 144, utsname 390, flock 32, epoll_event 12, pollfd 8.
constexpr Row kRows[] = {
    {SYS_read, {counted(1, 2)}},
    {SYS_write, {counted(1, 2)}},
    {SYS_pread64, {counted(1, 2)}},
    {SYS_pwrite64, {counted(1, 2)}},
    {SYS_readv, {vector(1, 2)}},
    {SYS_writev, {vector(1, 2)}},
    {SYS_preadv, {vector(1, 2)}},
    {SYS_pwritev, {vector(1, 2)}},
    {SYS_preadv2, {vector(1, 2)}},
    {SYS_pwritev2, {vector(1, 2)}},
    {SYS_recvfrom, {counted(1, 2), in_out(4, 5)}},
    {SYS_sendto, {counted(1, 2), counted(4, 5)}},
    {SYS_recvmsg, {message(1)}},
    {SYS_sendmsg, {message(1)}},
    {SYS_sendfile, {fixed(2, 8)}},
    {SYS_splice, {fixed(1, 8), fixed(3, 8)}},
    {SYS_copy_file_range, {fixed(1, 8), fixed(3, 8)}},
    {SYS_getrandom, {counted(0, 1)}},
    {SYS_getdents64, {counted(1, 2)}},

    {SYS_open, {text(0)}},
    {SYS_openat, {text(1)}},
    {SYS_creat, {text(0)}},
    {SYS_stat, {text(0), fixed(1, 144)}},
    {SYS_lstat, {text(0), fixed(1, 144)}},
    {SYS_fstat, {fixed(1, 144)}},
    {SYS_newfstatat, {text(1), fixed(2, 144)}},
    {SYS_statx, {text(1), fixed(4, 256)}},
    {SYS_statfs, {text(0), fixed(1, 120)}},
    {SYS_fstatfs, {fixed(1, 120)}},
    {SYS_access, {text(0)}},
    {SYS_faccessat, {text(1)}},
    {SYS_faccessat2, {text(1)}},
    {SYS_readlink, {text(0), counted(1, 2)}},
    {SYS_readlinkat, {text(1), counted(2, 3)}},
    {SYS_getcwd, {counted(0, 1)}},
    {SYS_chdir, {text(0)}},
    {SYS_mkdir, {text(0)}},
    {SYS_mkdirat, {text(1)}},
    {SYS_rmdir, {text(0)}},
    {SYS_unlink, {text(0)}},
    {SYS_unlinkat, {text(1)}},
    {SYS_rename, {text(0), text(1)}},
    {SYS_renameat, {text(1), text(3)}},
    {SYS_renameat2, {text(1), text(3)}},
    {SYS_link, {text(0), text(1)}},
    {SYS_linkat, {text(1), text(3)}},
    {SYS_symlink, {text(0), text(1)}},
    {SYS_symlinkat, {text(0), text(2)}},
    {SYS_chmod, {text(0)}},
    {SYS_fchmodat, {text(1)}},
    {SYS_chown, {text(0)}},
    {SYS_fchownat, {text(1)}},
    {SYS_truncate, {text(0)}},
    {SYS_utimensat, {text(1), fixed(2, 32)}},
    {SYS_memfd_create, {text(0)}},
    {SYS_inotify_add_watch, {text(1)}},

    {SYS_bind, {counted(1, 2)}},
    {SYS_connect, {counted(1, 2)}},
    {SYS_accept, {in_out(1, 2)}},
    {SYS_accept4, {in_out(1, 2)}},
    {SYS_getsockname, {in_out(1, 2)}},
    {SYS_getpeername, {in_out(1, 2)}},
    {SYS_setsockopt, {counted(3, 4)}},
    {SYS_getsockopt, {in_out(3, 4)}},
    {SYS_socketpair, {fixed(3, 8)}},
    {SYS_pipe, {fixed(0, 8)}},
    {SYS_pipe2, {fixed(0, 8)}},

    {SYS_poll, {counted(0, 1, 8)}},
    {SYS_ppoll, {counted(0, 1, 8), fixed(2, 16), fixed(3, 8)}},
    {SYS_epoll_ctl, {fixed(3, 12)}},
    {SYS_epoll_wait, {counted(1, 2, 12)}},
    {SYS_epoll_pwait, {counted(1, 2, 12), fixed(4, 8)}},
    {SYS_epoll_pwait2, {counted(1, 2, 12), fixed(3, 16), fixed(4, 8)}},

    {SYS_nanosleep, {fixed(0, 16), fixed(1, 16)}},
    {SYS_clock_nanosleep, {fixed(2, 16), fixed(3, 16)}},
    {SYS_clock_gettime, {fixed(1, 16)}},
    {SYS_clock_getres, {fixed(1, 16)}},
    {SYS_gettimeofday, {fixed(0, 16), fixed(1, 8)}},
    {SYS_time, {fixed(0, 8)}},
    {SYS_times, {fixed(0, 32)}},
    {SYS_getitimer, {fixed(1, 32)}},
    {SYS_setitimer, {fixed(1, 32), fixed(2, 32)}},
    {SYS_timer_create, {fixed(1, 64), fixed(2, 4)}},
    {SYS_timer_settime, {fixed(2, 32), fixed(3, 32)}},
    {SYS_timer_gettime, {fixed(1, 32)}},
    {SYS_timerfd_settime, {fixed(2, 32), fixed(3, 32)}},
    {SYS_timerfd_gettime, {fixed(1, 32)}},

    {SYS_wait4, {fixed(1, 4), fixed(3, 144)}},
    {SYS_waitid, {fixed(2, 128), fixed(4, 144)}},
    {SYS_getrusage, {fixed(1, 144)}},
    {SYS_getrlimit, {fixed(1, 16)}},
    {SYS_setrlimit, {fixed(1, 16)}},
    {SYS_prlimit64, {fixed(2, 16), fixed(3, 16)}},
    {SYS_uname, {fixed(0, 390)}},
    {SYS_sysinfo, {fixed(0, 112)}},
    {SYS_getcpu, {fixed(0, 4), fixed(1, 4)}},
    {SYS_sched_getaffinity, {counted(2, 1)}},
    {SYS_sched_setaffinity, {counted(2, 1)}},
    {SYS_sched_getparam, {fixed(1, 4)}},
    {SYS_sched_setscheduler, {fixed(2, 4)}},
    {SYS_getresuid, {fixed(0, 4), fixed(1, 4), fixed(2, 4)}},
    {SYS_getresgid, {fixed(0, 4), fixed(1, 4), fixed(2, 4)}},

    {SYS_rt_sigaction, {fixed(1, 32), fixed(2, 32)}},
    {SYS_rt_sigprocmask, {fixed(1, 8), fixed(2, 8)}},
    {SYS_rt_sigpending, {fixed(0, 8)}},
    {SYS_rt_sigtimedwait, {fixed(0, 8), fixed(1, 128), fixed(2, 16)}},
    {SYS_rt_sigsuspend, {fixed(0, 8)}},
    {SYS_rt_sigqueueinfo, {fixed(2, 128)}},
    {SYS_rt_tgsigqueueinfo, {fixed(3, 128)}},
    {SYS_signalfd4, {fixed(1, 8)}},

    {SYS_capget, {fixed(0, 8), fixed(1, 24)}},
    {SYS_capset, {fixed(0, 8), fixed(1, 24)}},
    {SYS_getgroups, {counted(1, 0, 4)}},
    {SYS_setgroups, {counted(1, 0, 4)}},
    {SYS_sched_setattr, {fixed(1, 56)}},
    {SYS_sched_getattr, {counted(1, 2)}},

    {SYS_set_tid_address, {fixed(0, 4)}},
    {SYS_set_robust_list, {fixed(0, 24)}},
    {SYS_rseq, {counted(0, 1)}},
    {SYS_arch_prctl, {fixed(1, 8)}},

    // These use no memory of the program, or their effect on mappings arrives as an event of the
    // userfaultfd.
    {SYS_close, {}},
    {SYS_close_range, {}},
    {SYS_dup, {}},
    {SYS_dup2, {}},
    {SYS_dup3, {}},
    {SYS_lseek, {}},
    {SYS_fsync, {}},
    {SYS_fdatasync, {}},
    {SYS_sync, {}},
    {SYS_ftruncate, {}},
    {SYS_fallocate, {}},
    {SYS_fadvise64, {}},
    {SYS_flock, {}},
    {SYS_fchdir, {}},
    {SYS_fchmod, {}},
    {SYS_fchown, {}},
    {SYS_umask, {}},
    {SYS_socket, {}},
    {SYS_listen, {}},
    {SYS_shutdown, {}},
    {SYS_eventfd, {}},
    {SYS_eventfd2, {}},
    {SYS_epoll_create, {}},
    {SYS_epoll_create1, {}},
    {SYS_timerfd_create, {}},
    {SYS_inotify_init1, {}},
    {SYS_inotify_rm_watch, {}},
    {SYS_tee, {}},
    {SYS_mmap, {}},
    {SYS_munmap, {}},
    {SYS_mprotect, {}},
    {SYS_mremap, {}},
    {SYS_brk, {}},
    {SYS_membarrier, {}},
    {SYS_sched_yield, {}},
    {SYS_sched_getscheduler, {}},
    {SYS_getpriority, {}},
    {SYS_setpriority, {}},
    {SYS_getpid, {}},
    {SYS_getppid, {}},
    {SYS_gettid, {}},
    {SYS_getpgrp, {}},
    {SYS_getpgid, {}},
    {SYS_setpgid, {}},
    {SYS_getsid, {}},
    {SYS_getuid, {}},
    {SYS_geteuid, {}},
    {SYS_getgid, {}},
    {SYS_getegid, {}},
    {SYS_setuid, {}},
    {SYS_setgid, {}},
    {SYS_setreuid, {}},
    {SYS_setregid, {}},
    {SYS_setresuid, {}},
    {SYS_setresgid, {}},
    {SYS_setfsuid, {}},
    {SYS_setfsgid, {}},
    {SYS_setsid, {}},
    {SYS_personality, {}},
    {SYS_ioprio_get, {}},
    {SYS_ioprio_set, {}},
    {SYS_kill, {}},
    {SYS_tkill, {}},
    {SYS_tgkill, {}},
    {SYS_alarm, {}},
    {SYS_pause, {}},
    {SYS_timer_delete, {}},
    {SYS_timer_getoverrun, {}},
    {SYS_restart_syscall, {}},
};

const Row* row_of(uint64_t number) {
  for (const Row& row : kRows)
    if (row.number == number) return &row;
  return nullptr;
}

class Supply {
 public:
  Supply(const SystemCall& call, ProgramMemory* memory) : call_(call), memory_(memory) {}
  // Return false if the system call must wait.
  bool use(const Use&);
  bool range(uint64_t address, uint64_t bytes);

 private:
  bool in_out(uint64_t address, uint64_t length_at);
  bool vector(uint64_t address, uint64_t count);
  bool message(uint64_t address);
  bool text(uint64_t address);

  const SystemCall& call_;
  ProgramMemory* memory_;
};

// What is longer than this is awaited instead, as other threads wait meanwhile.
constexpr uint64_t kMost = 64 << 20;

bool Supply::range(uint64_t address, uint64_t bytes) {
  if (!address || !bytes) return true;
  if (bytes > kMost) return false;
  memory_->supply(address, bytes);
  return true;
}

bool Supply::in_out(uint64_t address, uint64_t length_at) {
  int32_t length = 0;
  if (!length_at || !memory_->read(length_at, &length, sizeof(length))) return true;
  return range(address, static_cast<uint64_t>(std::max(length, 0)));
}

// Text is read to its end, which may be in a page that the kernel does not look at.
bool Supply::text(uint64_t address) {
  char part[256];
  for (uint64_t at = address; address && at < address + PATH_MAX;) {
    const uint64_t left = 4096 - at % 4096;
    const size_t bytes = std::min<uint64_t>(sizeof(part), left);
    if (!memory_->read(at, part, bytes)) return true;  // the kernel finds the same
    if (std::find(part, part + bytes, 0) != part + bytes) return true;
    at += bytes;
  }
  return true;
}

bool Supply::vector(uint64_t address, uint64_t count) {
  if (!address || count > IOV_MAX) return true;  // refused by the kernel
  uint64_t total = 0;
  for (uint64_t i = 0; i < count; ++i) {
    iovec part;
    if (!memory_->read(address + i * sizeof(part), &part, sizeof(part))) return true;
    total += part.iov_len;
    if (total > kMost || !range(reinterpret_cast<uint64_t>(part.iov_base), part.iov_len))
      return false;
  }
  return true;
}

bool Supply::message(uint64_t address) {
  msghdr m;
  if (!address || !memory_->read(address, &m, sizeof(m))) return true;
  return range(reinterpret_cast<uint64_t>(m.msg_name), m.msg_namelen) &&
         range(reinterpret_cast<uint64_t>(m.msg_control), m.msg_controllen) &&
         vector(reinterpret_cast<uint64_t>(m.msg_iov), m.msg_iovlen);
}

bool Supply::use(const Use& u) {
  const uint64_t address = call_.arguments[u.at];
  const uint64_t by = call_.arguments[u.by];
  switch (u.kind) {
    case Use::kNone:
      return true;
    case Use::kFixed:
      return range(address, u.size);
    case Use::kCounted:
      return by > kMost ? !address : range(address, by * u.size);
    case Use::kInOut:
      return in_out(address, by);
    case Use::kText:
      return text(address);
    case Use::kVector:
      return vector(address, by);
    case Use::kMessage:
      return message(address);
    case Use::kMask: {
      uint64_t set[2] = {};
      return !address || !memory_->read(address, set, sizeof(set)) || range(set[0], 8);
    }
  }
  return false;
}

bool supply_for_select(const SystemCall& call, Supply* supply) {
  const uint64_t bytes = (std::min<uint64_t>(call.arguments[0], 1 << 20) + 63) / 64 * 8;
  for (int i = 1; i <= 3; ++i)
    if (!supply->range(call.arguments[i], bytes)) return false;
  return supply->use(fixed(4, 16)) && (call.number == SYS_select || supply->use(mask(5)));
}

bool supply_for_futex(const SystemCall& call, Supply* supply) {
  const auto operation = static_cast<int>(call.arguments[1]) & FUTEX_CMD_MASK;
  if (!supply->use(fixed(0, 4))) return false;
  switch (operation) {
    case FUTEX_WAKE:
    case FUTEX_WAKE_BITSET:
    case FUTEX_UNLOCK_PI:
    case FUTEX_TRYLOCK_PI:
      return true;
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET:
    case FUTEX_LOCK_PI:
    case FUTEX_LOCK_PI2:
      return supply->use(fixed(3, 16));
    case FUTEX_REQUEUE:
    case FUTEX_CMP_REQUEUE:
    case FUTEX_WAKE_OP:
    case FUTEX_CMP_REQUEUE_PI:
      return supply->use(fixed(4, 4));
    case FUTEX_WAIT_REQUEUE_PI:
      return supply->use(fixed(3, 16)) && supply->use(fixed(4, 4));
    default:
      return false;
  }
}

// A thread: all others get memory of their own, in which no page is supplied.
bool supply_for_thread(uint64_t flags, uint64_t parent_tid, uint64_t child_tid, uint64_t pidfd,
                       Supply* supply) {
  constexpr uint64_t kThread = CLONE_VM | CLONE_THREAD;
  return (flags & kThread) == kThread && supply->range(parent_tid, 4) &&
         supply->range(child_tid, 4) && supply->range(pidfd, 4);
}

bool supply_for_clone3(const SystemCall& call, ProgramMemory* memory, Supply* supply) {
  clone_args a{};
  const uint64_t bytes = std::min<uint64_t>(call.arguments[1], sizeof(a));
  return memory->read(call.arguments[0], &a, bytes) && !a.set_tid &&
         supply_for_thread(a.flags, a.parent_tid, a.child_tid, a.pidfd, supply);
}

bool supply_for_altstack(const SystemCall& call, ProgramMemory* memory, Supply* supply) {
  stack_t stack{};
  if (!supply->use(fixed(0, sizeof(stack))) || !supply->use(fixed(1, sizeof(stack)))) return false;
  return !call.arguments[0] || !memory->read(call.arguments[0], &stack, sizeof(stack)) ||
         supply->range(reinterpret_cast<uint64_t>(stack.ss_sp), stack.ss_size);
}

// When a thread ends, the kernel marks the robust mutexes that it holds, wherever they are, and
// clears a word that its maker has set.
bool supply_for_exit(const SystemCall& call, ProgramMemory* memory) {
  uint64_t head = 0, bytes = 0, list[3] = {};
  if (syscall(SYS_get_robust_list, call.thread, &head, &bytes) != 0) return false;
  return !head || (memory->read(head, list, sizeof(list)) && list[0] == head && !list[2]);
}

bool supply_for_fcntl(const SystemCall& call, Supply* supply) {
  switch (call.arguments[1]) {
    case F_DUPFD:
    case F_DUPFD_CLOEXEC:
    case F_GETFD:
    case F_SETFD:
    case F_GETFL:
    case F_SETFL:
    case F_GETOWN:
    case F_SETOWN:
    case F_GETSIG:
    case F_SETSIG:
    case F_SETPIPE_SZ:
    case F_GETPIPE_SZ:
    case F_ADD_SEALS:
    case F_GET_SEALS:
    case F_GETLEASE:
    case F_SETLEASE:
      return true;
    case F_GETLK:
    case F_SETLK:
    case F_SETLKW:
    case F_OFD_GETLK:
    case F_OFD_SETLK:
    case F_OFD_SETLKW:
      return supply->use(fixed(2, 32));
    default:
      return false;
  }
}

// Requests of terminals and sockets that many programs make. All others may point anywhere, in
// memory that only their driver knows.
bool supply_for_ioctl(const SystemCall& call, Supply* supply) {
  switch (call.arguments[1]) {
    case FIOCLEX:
    case FIONCLEX:
      return true;
    case FIONBIO:
    case FIOASYNC:
    case FIONREAD:
    case TIOCOUTQ:
    case TIOCGPGRP:
    case TIOCSPGRP:
    case TIOCGWINSZ:
    case TIOCSWINSZ:
      return supply->use(fixed(2, 8));
    case TCGETS:
    case TCSETS:
    case TCSETSW:
    case TCSETSF:
      return supply->use(fixed(2, 64));
    default:
      return false;
  }
}

bool supply_for_prctl(const SystemCall& call, Supply* supply) {
  switch (call.arguments[0]) {
    case PR_SET_NAME:
    case PR_GET_NAME:
      return supply->use(fixed(1, 16));
    case PR_SET_PDEATHSIG:
    case PR_GET_DUMPABLE:
    case PR_SET_DUMPABLE:
    case PR_GET_KEEPCAPS:
    case PR_SET_KEEPCAPS:
    case PR_GET_SECCOMP:
    case PR_CAPBSET_READ:
    case PR_CAPBSET_DROP:
    case PR_SET_TSC:
    case PR_GET_SECUREBITS:
    case PR_SET_SECUREBITS:
    case PR_SET_TIMERSLACK:
    case PR_GET_TIMERSLACK:
    case PR_SET_CHILD_SUBREAPER:
    case PR_SET_NO_NEW_PRIVS:
    case PR_GET_NO_NEW_PRIVS:
    case PR_CAP_AMBIENT:
    case PR_SET_PTRACER:
      return true;
    default:
      return false;
  }
}

// MADV_DONTNEED and its like reach the pager as events.
bool advice_is_harmless(uint64_t advice) {
  switch (advice) {
    case MADV_NORMAL:
    case MADV_RANDOM:
    case MADV_SEQUENTIAL:
    case MADV_WILLNEED:
    case MADV_DONTNEED:
    case MADV_FREE:
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
    case MADV_DONTDUMP:
    case MADV_DODUMP:
      return true;
    default:
      return false;
  }
}

bool supplied(const SystemCall& call, ProgramMemory* memory) {
  Supply supply(call, memory);
  const uint64_t* a = call.arguments;
  switch (call.number) {
    case SYS_select:
    case SYS_pselect6:
      return supply_for_select(call, &supply);
    case SYS_futex:
      return supply_for_futex(call, &supply);
    case SYS_clone:
      return supply_for_thread(a[0], a[2], a[3], 0, &supply);
    case SYS_clone3:
      return supply_for_clone3(call, memory, &supply);
    case SYS_sigaltstack:
      return supply_for_altstack(call, memory, &supply);
    case SYS_rt_sigreturn:  // the frame: registers, and the processor's state of up to 11 KiB
      return supply.range(call.stack - 128, 16 << 10);
    case SYS_exit:
      return supply_for_exit(call, memory);
    case SYS_fcntl:
      return supply_for_fcntl(call, &supply);
    case SYS_ioctl:
      return supply_for_ioctl(call, &supply);
    case SYS_prctl:
      return supply_for_prctl(call, &supply);
    case SYS_madvise:
      return advice_is_harmless(a[2]);
    default:
      break;
  }
  const Row* row = row_of(call.number);
  if (!row) return false;
  for (const Use& u : row->uses)
    if (!supply.use(u)) return false;
  return true;
}

}  // namespace

CallMay supply_for_call(const SystemCall& call, ProgramMemory* memory) {
  switch (call.number) {
    case SYS_process_vm_readv:
    case SYS_process_vm_writev:
    case SYS_process_madvise:
    case SYS_ptrace:
      return CallMay::kBeginWhenAllAre;
    default:
      return supplied(call, memory) ? CallMay::kBegin : CallMay::kBeginWhenThere;
  }
}

bool ends_when_interrupted(const SystemCall& call) {
  switch (call.number) {
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
    case SYS_rt_sigtimedwait:
    case SYS_semop:
    case SYS_semtimedop:
    case SYS_msgsnd:
    case SYS_msgrcv:
    case SYS_io_getevents:
    case SYS_io_pgetevents:
      return true;
    default:
      return false;
  }
}

bool has_time_out_in_ms(const SystemCall& call) {
  return (call.number == SYS_epoll_wait || call.number == SYS_epoll_pwait) &&
         static_cast<int>(call.arguments[3]) >= 0;
}

bool has_time_out(const SystemCall& call) {
  const uint64_t* a = call.arguments;
  switch (call.number) {
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
      return has_time_out_in_ms(call);
    case SYS_epoll_pwait2:
    case SYS_semtimedop:
      return a[3] != 0;
    case SYS_rt_sigtimedwait:
      return a[2] != 0;
    case SYS_io_getevents:
    case SYS_io_pgetevents:
      return a[4] != 0;
    default:
      return false;
  }
}

}  // namespace gpuckpt::restore
