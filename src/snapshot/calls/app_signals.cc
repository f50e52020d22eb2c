// Signals that we listen to belong to the application all the same: it may handle, ignore, block or
// wait for them, and every query shows what it asked for. In the kernel our handler is installed in
// place of the program's. There are two: the trigger (SIGUSR1), which reaches the application at
// once, and with --on-term SIGTERM, which waits for its snapshot and is then sent again, marked
// with a cookie.

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <ucontext.h>

#include <atomic>

#include "base/mutex.h"
#include "base/syscall.h"
#include "snapshot/calls/app_signals.h"
#include "snapshot/calls/borrowed_memory.h"
#include "snapshot/calls/signal_stacks.h"
#include "snapshot/control/state.h"
#include "snapshot/park/interrupted_call.h"
#include "snapshot/park/raw_thread.h"
#include "snapshot/trigger/sender.h"

namespace gpuckpt {
namespace {

constexpr uint64_t kSaRestorer = 0x04000000;

constexpr uint64_t kAgainCookie = 0x67636b70'61676169;

struct Listened {
  std::atomic<int> signal;        // 0: none
  bool snapshot_first;            // the application gets it after the snapshot
  struct sigaction app;           // what the application asked for
  std::atomic<uint32_t> version;  // odd while `app` is being written: the handler reads unlocked
};
// The kernel has one action for each signal of a process, and so have these.
constinit Listened listened[2]{};
constinit std::atomic<bool> any{false};  // of them is in use
Mutex actions_mutex;                     // writers of `listened`
siginfo_t term_info;                     // of the SIGTERM that waits (library.term_waits)

Listened* find(int sig) {
  if (sig <= 0 || !any.load(std::memory_order_relaxed)) return nullptr;
  for (Listened& l : listened)
    if (l.signal == sig) return &l;
  return nullptr;
}

struct sigaction app_action(Listened* l) {
  struct sigaction now;
  uint32_t v;
  do {
    v = l->version.load(std::memory_order_acquire);
    now = l->app;
  } while ((v & 1) || l->version.load(std::memory_order_acquire) != v);
  return now;
}

bool has_handler(const struct sigaction& a) {
  return a.sa_handler != SIG_DFL && a.sa_handler != SIG_IGN;
}

void call_app(Listened* l, const struct sigaction& now, int sig, siginfo_t* info, void* context) {
  if (now.sa_flags & SA_RESETHAND) l->app.sa_handler = SIG_DFL;  // all flags stay
  if (now.sa_flags & SA_SIGINFO)
    now.sa_sigaction(sig, info, context);
  else
    now.sa_handler(sig);
}

// The kernel's own action, for good: what happens then is not ours any more.
void let_default_happen(int sig) {
  sys::Sigaction standard{};
  sys::sigaction(sig, &standard, nullptr);
  sys::call(SYS_kill, sys::getpid(), sig);
}

// What the kernel does by itself with a signal without a handler.
bool ends_program(int sig) {
  constexpr uint64_t kHarmless = 1ull << SIGCHLD | 1ull << SIGCONT | 1ull << SIGURG |
                                 1ull << SIGWINCH | 1ull << SIGTSTP | 1ull << SIGTTIN |
                                 1ull << SIGTTOU;
  return !(kHarmless >> sig & 1);
}

bool is_again(const siginfo_t* info) {
  return info->si_code == SI_QUEUE && info->si_pid == library.pid &&
         reinterpret_cast<uint64_t>(info->si_value.sival_ptr) == kAgainCookie;
}

// The signal has been sent again: this runs the application's handler under the mask that it asked
// for.
void run_app_handler(Listened* l, int sig, void* context) {
  struct sigaction now = app_action(l);
  if (!has_handler(now)) return;
  uint64_t mask, more;
  __builtin_memcpy(&mask, &static_cast<ucontext_t*>(context)->uc_sigmask, 8);
  __builtin_memcpy(&more, &now.sa_mask, 8);
  mask |= more;
  if (!(now.sa_flags & SA_NODEFER)) mask |= 1ull << (sig - 1);
  siginfo_t original = term_info;
  sys::sigprocmask_set(mask);
  call_app(l, now, sig, &original, context);
}

void handler(int sig, siginfo_t* info, void* context) {
  Listened* l = find(sig);
  if (!l) return;
  if (l->snapshot_first) {
    if (is_again(info)) return run_app_handler(l, sig, context);
    if (!library.term_waits.exchange(1)) {
      term_info = *info;
      if (!wake_coordinator(kWantTerm)) deliver_term();
    }
    continue_call(static_cast<ucontext_t*>(context), info);
    return;
  }
  struct sigaction now = app_action(l);
  const bool its_own = !library.deaf && sent_within_job(info);
  if (!its_own) wake_coordinator(kWantSignal);
  if (!has_handler(now)) {
    if (its_own && now.sa_handler == SIG_DFL && ends_program(sig)) let_default_happen(sig);
    continue_call(static_cast<ucontext_t*>(context), info);
    return;
  }
  call_app(l, now, sig, info, context);
}

bool is_ours_in_kernel(int sig) {
  sys::Sigaction now{};
  sys::sigaction(sig, nullptr, &now);
  return now.handler == reinterpret_cast<uint64_t>(handler);
}

}  // namespace

bool is_listened(int sig) { return find(sig) && is_ours_in_kernel(sig); }

bool is_for_program(int sig, const siginfo_t* info) {
  Listened* l = find(sig);
  if (!l || !has_handler(app_action(l))) return false;
  return l->snapshot_first ? is_again(info) : true;
}

namespace {

// What the kernel is told: our handler with the application's mask and flags, or, when it has no
// handler or gets the signal later, with all signals blocked (eintr.h).
void install(const Listened& l) {
  sys::Sigaction k{};
  k.handler = reinterpret_cast<uint64_t>(handler);
  k.restorer = reinterpret_cast<uint64_t>(gpuckpt_sigreturn);
  bool its_own = has_handler(l.app);
  uint64_t flags =
      its_own ? static_cast<uint64_t>(l.app.sa_flags) : SA_RESTART | signal_stack_flag();
  k.flags = SA_SIGINFO | kSaRestorer | (flags & (SA_RESTART | SA_ONSTACK));
  if (!its_own || l.snapshot_first) {
    k.mask = ~0ull;
  } else {
    k.flags |= flags & SA_NODEFER;
    __builtin_memcpy(&k.mask, &l.app.sa_mask, 8);
  }
  sys::sigaction(l.signal, &k, nullptr);
}

using SigactionFn = int (*)(int, const struct sigaction*, struct sigaction*);
SigactionFn real_sigaction() {
  static SigactionFn real;
  if (!real) real = reinterpret_cast<SigactionFn>(dlsym(RTLD_NEXT, "sigaction"));
  return real;
}

int change(Listened* l, const struct sigaction* act, struct sigaction* old) {
  // The caller's own handler for this signal must not run while the lock is held.
  uint64_t mask = sys::sigprocmask_all();
  actions_mutex.lock();
  if (old) *old = l->app;
  if (act) {
    l->version.fetch_add(1);
    l->app = *act;
    l->version.fetch_add(1);
    install(*l);
  }
  actions_mutex.unlock();
  sys::sigprocmask_set(mask);
  return 0;
}

// In a child that runs in its parent's memory: `listened` is the parent's, the kernel's action is
// the child's. (Python sets all signals to their defaults there before it executes a program.)
int borrower_sigaction(Listened* l, const struct sigaction* act, struct sigaction* old) {
  const bool inherited = is_ours_in_kernel(l->signal);
  struct sigaction before = {};
  if (inherited) before = app_action(l);
  const int result = real_sigaction()(l->signal, act, inherited ? nullptr : &before);
  if (result == 0 && old) *old = before;
  return result;
}

int app_sigaction(int sig, const struct sigaction* act, struct sigaction* old) {
  Listened* l = find(sig);
  if (!l) return real_sigaction()(sig, act, old);
  if (in_borrowed_memory()) return borrower_sigaction(l, act, old);
  struct sigaction copy_of_act;  // act and old may be the same object
  if (act) copy_of_act = *act;
  return change(l, act ? &copy_of_act : nullptr, old);
}

sighandler_t app_signal(int sig, sighandler_t h, int flags) {
  struct sigaction act = {}, old = {};
  act.sa_handler = h;
  act.sa_flags = flags;
  if (!(flags & SA_RESETHAND)) sigaddset(&act.sa_mask, sig);
  return app_sigaction(sig, &act, &old) < 0 ? SIG_ERR : old.sa_handler;
}

// Programs that wait for the signal with sigwait instead of handling it trigger a snapshot as well.
// Returns true if the caller must wait again: the signal was consumed before the restore.
bool noticed(int sig, const siginfo_t& info) {
  Listened* l = find(sig);
  if (!l) return false;
  if (!l->snapshot_first) {
    if (!sent_within_job(&info)) wake_coordinator(kWantSignal);
    return false;
  }
  uint32_t generation = library.generation, served = library.terms_served;
  if (!wake_coordinator(kWantTermTaken)) return false;
  while (library.generation == generation && library.terms_served == served) sys::sleep_us(2000);
  return library.generation != generation;
}

template <typename Fn>
Fn next(Fn& cache, const char* name) {
  if (!cache) cache = reinterpret_cast<Fn>(dlsym(RTLD_NEXT, name));
  return cache;
}

}  // namespace

void listen_to_signal(int sig, bool snapshot_first) {
  Listened& l = listened[snapshot_first];
  real_sigaction()(sig, nullptr, &l.app);
  l.snapshot_first = snapshot_first;
  l.signal = sig;
  any = true;
  install(l);
}

void stop_listening_to_term() {
  Listened& l = listened[1];
  int sig = l.signal.exchange(0);
  library.term_waits = 0;
  if (sig) real_sigaction()(sig, &l.app, nullptr);
}

void listen_on_own_stacks() {
  const uint64_t mask = sys::sigprocmask_all();
  actions_mutex.lock();
  for (Listened& l : listened)
    if (l.signal && is_ours_in_kernel(l.signal)) install(l);
  actions_mutex.unlock();
  sys::sigprocmask_set(mask);
}

unsigned ignore_what_program_ignores() {
  sys::Sigaction ignore{};
  ignore.handler = 1;  // SIG_IGN
  unsigned which = 0;
  for (Listened& l : listened) {
    const int sig = l.signal;
    if (!sig || app_action(&l).sa_handler != SIG_IGN || !is_ours_in_kernel(sig)) continue;
    sys::sigaction(sig, &ignore, nullptr);
    which |= 1u << (&l - listened);
  }
  return which;
}

void listen_again(unsigned which) {
  for (Listened& l : listened)
    if (which >> (&l - listened) & 1) install(l);
}

int term_signal() { return listened[1].signal; }
bool term_is_fatal() { return app_action(&listened[1]).sa_handler == SIG_DFL; }

void deliver_term() {
  Listened& l = listened[1];
  if (!l.signal || !library.term_waits) return;
  struct sigaction now = app_action(&l);
  if (now.sa_handler == SIG_DFL) {
    let_default_happen(l.signal);
  } else if (has_handler(now)) {
    siginfo_t info = {};
    info.si_signo = l.signal;
    info.si_code = SI_QUEUE;
    info.si_pid = library.pid;
    info.si_value.sival_ptr = reinterpret_cast<void*>(kAgainCookie);
    sys::call(SYS_rt_sigqueueinfo, library.pid, l.signal, sys::ptr(&info));
  }
  library.term_waits = 0;
}

}  // namespace gpuckpt

#define EXPORT extern "C" __attribute__((visibility("default")))
using namespace gpuckpt;

EXPORT int sigaction(int sig, const struct sigaction* act, struct sigaction* old) noexcept {
  return app_sigaction(sig, act, old);
}
EXPORT int __sigaction(int sig, const struct sigaction* act, struct sigaction* old) noexcept {
  return app_sigaction(sig, act, old);
}
EXPORT sighandler_t signal(int sig, sighandler_t h) noexcept {
  static sighandler_t (*real)(int, sighandler_t);
  if (!find(sig)) return next(real, "signal")(sig, h);
  return app_signal(sig, h, SA_RESTART);
}
EXPORT sighandler_t bsd_signal(int sig, sighandler_t h) noexcept { return signal(sig, h); }
EXPORT sighandler_t ssignal(int sig, sighandler_t h) noexcept { return signal(sig, h); }
EXPORT sighandler_t __sysv_signal(int sig, sighandler_t h) noexcept {
  static sighandler_t (*real)(int, sighandler_t);
  if (!find(sig)) return next(real, "__sysv_signal")(sig, h);
  return app_signal(sig, h, SA_RESETHAND | SA_NODEFER);
}
EXPORT sighandler_t sysv_signal(int sig, sighandler_t h) noexcept { return __sysv_signal(sig, h); }

// Waits as `wait` does, until it has a signal that was not spent.
template <typename Wait>
static int wait_for_signal(siginfo_t* info, Wait wait) {
  siginfo_t own;
  siginfo_t* to = info ? info : &own;
  int result;
  do {
    result = wait(to);
  } while (result > 0 && noticed(result, *to));
  return result;
}

static int (*real_sigwaitinfo)(const sigset_t*, siginfo_t*);
static int (*real_sigtimedwait)(const sigset_t*, siginfo_t*, const struct timespec*);

EXPORT int sigwaitinfo(const sigset_t* set, siginfo_t* info) {
  return wait_for_signal(
      info, [&](siginfo_t* to) { return next(real_sigwaitinfo, "sigwaitinfo")(set, to); });
}
EXPORT int sigtimedwait(const sigset_t* set, siginfo_t* info, const struct timespec* t) {
  return wait_for_signal(
      info, [&](siginfo_t* to) { return next(real_sigtimedwait, "sigtimedwait")(set, to, t); });
}
// libc's own waits again after an interruption, and returns what went wrong.
EXPORT int sigwait(const sigset_t* set, int* sig) {
  const int before = errno;
  int got;
  do {
    got = wait_for_signal(
        nullptr, [&](siginfo_t* to) { return next(real_sigwaitinfo, "sigwaitinfo")(set, to); });
  } while (got < 0 && errno == EINTR);
  const int error = errno;
  errno = before;
  if (got < 0) return error;
  *sig = got;
  return 0;
}
