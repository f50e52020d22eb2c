#include "snapshot/calls/filter_program.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>

namespace gpuckpt {
namespace {

// Newer than the headers of some machines this is built on. None of the calls from kStatmount on is
// ours.
constexpr int kCalls = 512;
constexpr int kFirstUnassigned = 335, kLastUnassigned = 423, kProcessMadvise = 440;
constexpr int kMountSetattr = 442, kProcessMrelease = 448, kFutexWaitv = 449;
constexpr int kSetMempolicyHomeNode = 450, kStatmount = 457;

struct Numbers {
  int first, last;
};
// Calls that neither the library, nor the writer, nor a restored process makes from its filters on:
// they may be answered in any way.
constexpr Numbers kNeverMade[] = {
    {SYS_uselib, SYS_uselib},
    {SYS_ustat, SYS_ustat},
    {SYS_sysfs, SYS_sysfs},
    {SYS_vhangup, SYS_vhangup},
    {SYS_pivot_root, SYS__sysctl},
    {SYS_adjtimex, SYS_adjtimex},
    {SYS_chroot, SYS_chroot},
    {SYS_acct, SYS_ioperm},  // mount, umount2, swapon, swapoff, reboot, sethostname, iopl, ...
    {SYS_create_module, SYS_security},  // quotactl, nfsservctl, ...
    {SYS_lookup_dcookie, SYS_lookup_dcookie},
    {SYS_clock_settime, SYS_clock_settime},
    {SYS_vserver, SYS_set_mempolicy},  // mbind
    {SYS_kexec_load, SYS_kexec_load},
    {SYS_add_key, SYS_request_key},
    {SYS_migrate_pages, SYS_migrate_pages},
    {SYS_unshare, SYS_unshare},
    {SYS_move_pages, SYS_move_pages},
    {SYS_perf_event_open, SYS_perf_event_open},
    {SYS_fanotify_init, SYS_fanotify_mark},
    {SYS_name_to_handle_at, SYS_clock_adjtime},
    {SYS_setns, SYS_setns},
    {SYS_finit_module, SYS_finit_module},
    {SYS_kexec_file_load, SYS_bpf},
    {SYS_pkey_mprotect, SYS_pkey_free},
    {kFirstUnassigned, kLastUnassigned},
    {SYS_io_uring_setup, SYS_fspick},  // open_tree, move_mount, fsopen, ...
    {kProcessMadvise, kProcessMadvise},
    {kMountSetattr, kProcessMrelease},  // quotactl_fd, Landlock, memfd_secret
    {kFutexWaitv, kSetMempolicyHomeNode},
    {kStatmount, kCalls - 1},
};

// Calls that may be answered with an error: there is another way, or what they would tell cannot be
// there. (Whether a process has local segments or a keyring of its own is asked when it sets a
// filter that forbids the question.)
constexpr int kMayFail[] = {SYS_ptrace,      SYS_kcmp,   SYS_userfaultfd,
                            SYS_setpriority, SYS_keyctl, SYS_modify_ldt};

// Where one of these facts holds of each call that we make, the program is followed for each of
// them.
struct ArgumentFact {
  int call, argument;
  uint32_t known, value;  // bits that are known, and what they are
};
constexpr uint32_t kAll = ~0u;
constexpr uint32_t kNewNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                    CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
constexpr ArgumentFact kFacts[] = {
    {SYS_clone, 0, kNewNamespaces, 0}, {SYS_personality, 0, kAll, 0xffffffff},
    {SYS_socket, 0, kAll, AF_UNIX},    {SYS_socket, 0, kAll, AF_INET},
    {SYS_socket, 0, kAll, AF_INET6},   {SYS_socket, 0, kAll, AF_NETLINK},
};
// What arguments of ours never are.
struct Never {
  int call, argument;
  uint32_t value;
};
constexpr Never kNever[] = {{SYS_ioctl, 1, TIOCSTI}, {SYS_ioctl, 1, TIOCLINUX}};

bool never_made(int call) {
  for (const Numbers& n : kNeverMade)
    if (call >= n.first && call <= n.last) return true;
  return false;
}

bool may_fail(int call, int error) {
  // The C library then makes clone instead.
  if (call == SYS_clone3) return error == ENOSYS;
  for (int c : kMayFail)
    if (c == call) return true;
  return false;
}

// 32 bits of which some are known.
struct Value {
  uint32_t known, bits;  // bits that are not known are 0
  int argument;          // the low half of which argument this is, unchanged; -1: of none
  bool is_known() const { return known == kAll; }
};
constexpr Value number(uint32_t n) { return {kAll, n, -1}; }
constexpr Value kAnything{0, 0, -1};

Value both_and(const Value& a, const Value& b) {
  if (b.is_known() && b.bits == kAll) return a;
  const uint32_t zero = (a.known & ~a.bits) | (b.known & ~b.bits), one = a.bits & b.bits;
  return {zero | one, one, -1};
}
Value both_or(const Value& a, const Value& b) {
  const uint32_t one = a.bits | b.bits, zero = (a.known & ~a.bits) & (b.known & ~b.bits);
  return {zero | one, one, -1};
}
Value shifted(const Value& a, uint32_t by, bool left) {
  if (by > 31) return number(0);
  if (left) return {a.known << by | ((1u << by) - 1), a.bits << by, -1};
  return {a.known >> by | ~(kAll >> by), a.bits >> by, -1};
}

enum class Truth { kNo, kYes, kEither };

// One way through the program.
struct Path {
  uint32_t at;
  Value a, x, memory[BPF_MEMWORDS];
};

class Follower {
 public:
  Follower(const sock_filter* program, size_t length, int call, const ArgumentFact* fact)
      : program_(program), length_(length), call_(call), fact_(fact) {}

  FilterAnswer worst() {
    open_[count_++] = {0, number(0), number(0), {}};
    for (Value& m : open_[0].memory) m = number(0);
    while (count_ && worst_ != FilterAnswer::kEnds) follow(open_[--count_]);
    return worst_;
  }

 private:
  static constexpr size_t kMostOpen = 32;
  static constexpr uint32_t kMostSteps = 100'000;

  void take(FilterAnswer a) {
    if (a > worst_) worst_ = a;
  }

  void answer(const Value& v) {
    if (!v.is_known()) return take(FilterAnswer::kEnds);
    const uint32_t action = v.bits & SECCOMP_RET_ACTION_FULL;
    if (action == SECCOMP_RET_ALLOW || action == SECCOMP_RET_LOG) return;
    if (action != SECCOMP_RET_ERRNO) return take(FilterAnswer::kEnds);
    if (!may_fail(call_, static_cast<int>(v.bits & SECCOMP_RET_DATA))) take(FilterAnswer::kFails);
  }

  // A word of struct seccomp_data.
  Value load(uint32_t offset) const {
    if (offset == offsetof(seccomp_data, nr)) return number(static_cast<uint32_t>(call_));
    if (offset == offsetof(seccomp_data, arch)) return number(AUDIT_ARCH_X86_64);
    if (offset < offsetof(seccomp_data, args)) return kAnything;
    const int argument = static_cast<int>(offset - offsetof(seccomp_data, args)) / 8;
    const bool high = offset % 8 != 0;
    if (fact_ && fact_->argument == argument)
      return high ? number(0) : Value{fact_->known, fact_->value, argument};
    return high ? kAnything : Value{0, 0, argument};
  }

  Truth equal(const Value& a, uint32_t k) const {
    if (a.is_known()) return a.bits == k ? Truth::kYes : Truth::kNo;
    if ((a.bits ^ k) & a.known) return Truth::kNo;
    for (const Never& n : kNever)
      if (n.call == call_ && n.argument == a.argument && n.value == k) return Truth::kNo;
    return Truth::kEither;
  }

  Truth test(uint16_t code, const Value& a, const Value& with) const {
    if (!with.is_known()) return Truth::kEither;
    const uint32_t k = with.bits;
    if (BPF_OP(code) == BPF_JEQ) return equal(a, k);
    if (BPF_OP(code) == BPF_JSET) {
      if (a.bits & k) return Truth::kYes;
      return (a.known & k) == k ? Truth::kNo : Truth::kEither;
    }
    const uint32_t least = a.bits, most = a.bits | ~a.known;
    const bool or_equal = BPF_OP(code) == BPF_JGE;
    if (least > k || (or_equal && least == k)) return Truth::kYes;
    return most < k || (!or_equal && most == k) ? Truth::kNo : Truth::kEither;
  }

  static Value calculate(uint16_t code, const Value& a, const Value& b) {
    const bool known = a.is_known() && b.is_known();
    switch (BPF_OP(code)) {
      case BPF_AND:
        return both_and(a, b);
      case BPF_OR:
        return both_or(a, b);
      case BPF_LSH:
      case BPF_RSH:
        return b.is_known() ? shifted(a, b.bits, BPF_OP(code) == BPF_LSH) : kAnything;
      case BPF_ADD:
        return known ? number(a.bits + b.bits) : kAnything;
      case BPF_SUB:
        return known ? number(a.bits - b.bits) : kAnything;
      case BPF_MUL:
        return known ? number(a.bits * b.bits) : kAnything;
      case BPF_XOR:
        return known ? number(a.bits ^ b.bits) : kAnything;
      case BPF_NEG:
        return a.is_known() ? number(-a.bits) : kAnything;
      default:
        return kAnything;
    }
  }

  void jump(Path* p, const sock_filter& f) {
    if (BPF_OP(f.code) == BPF_JA) {
      p->at += f.k;
      return;
    }
    const Truth t = test(f.code, p->a, BPF_SRC(f.code) == BPF_X ? p->x : number(f.k));
    if (t == Truth::kEither) {
      if (count_ == kMostOpen) return take(FilterAnswer::kEnds);
      open_[count_] = *p;
      open_[count_++].at += f.jf;
    }
    p->at += t == Truth::kNo ? f.jf : f.jt;
  }

  static void copy(Path* p, uint16_t code) {
    if (BPF_MISCOP(code) == BPF_TAX)
      p->x = p->a;
    else
      p->a = p->x;
  }

  Value loaded(const Path& p, const sock_filter& f) const {
    switch (BPF_MODE(f.code)) {
      case BPF_ABS:
        return load(f.k);
      case BPF_IMM:
        return number(f.k);
      case BPF_MEM:
        return f.k < BPF_MEMWORDS ? p.memory[f.k] : kAnything;
      case BPF_LEN:
        return number(sizeof(seccomp_data));
      default:
        return kAnything;
    }
  }

  void follow(Path p) {
    while (worst_ != FilterAnswer::kEnds) {
      if (p.at >= length_ || ++steps_ > kMostSteps) return take(FilterAnswer::kEnds);
      const sock_filter& f = program_[p.at++];
      switch (BPF_CLASS(f.code)) {
        case BPF_LD:
          p.a = loaded(p, f);
          break;
        case BPF_LDX:
          p.x = loaded(p, f);
          break;
        case BPF_ST:
        case BPF_STX:
          if (f.k < BPF_MEMWORDS) p.memory[f.k] = BPF_CLASS(f.code) == BPF_ST ? p.a : p.x;
          break;
        case BPF_ALU:
          p.a = calculate(f.code, p.a, BPF_SRC(f.code) == BPF_X ? p.x : number(f.k));
          break;
        case BPF_JMP:
          jump(&p, f);
          break;
        case BPF_MISC:
          copy(&p, f.code);
          break;
        case BPF_RET:
          return answer(BPF_RVAL(f.code) == BPF_A ? p.a : number(f.k));
      }
    }
  }

  const sock_filter* program_;
  const size_t length_;
  const int call_;
  const ArgumentFact* const fact_;
  Path open_[kMostOpen];
  size_t count_ = 0;
  uint32_t steps_ = 0;
  FilterAnswer worst_ = FilterAnswer::kLets;
};

FilterAnswer answer_to(const sock_filter* program, size_t length, int call) {
  FilterAnswer worst = FilterAnswer::kLets;
  bool told = false;
  for (const ArgumentFact& f : kFacts) {
    if (f.call != call) continue;
    told = true;
    const FilterAnswer a = Follower(program, length, call, &f).worst();
    if (a > worst) worst = a;
  }
  return told ? worst : Follower(program, length, call, nullptr).worst();
}

}  // namespace

FilterVerdict judge_filter(const sock_filter* program, size_t length) {
  FilterVerdict verdict{FilterAnswer::kLets, -1};
  for (int call = 0; call < kCalls && verdict.worst != FilterAnswer::kEnds; ++call) {
    if (never_made(call)) continue;
    const FilterAnswer a = answer_to(program, length, call);
    if (a > verdict.worst) verdict = {a, call};
  }
  return verdict;
}

}  // namespace gpuckpt
