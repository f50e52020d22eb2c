// The trigger signal (SIGUSR1) belongs to the application: it may handle, ignore, block or wait for
// it, and every query shows what it asked for. In the kernel our handler stands in front of its
// own.

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <ucontext.h>

#include <atomic>

#include "common/syscall.h"
#include "snapshot/eintr.h"
#include "snapshot/raw_thread.h"
#include "snapshot/state.h"

namespace gpuckpt {
namespace {

constexpr uint64_t kSaRestorer = 0x04000000;

std::atomic<int> listened{0};
std::atomic<uint32_t> lock_word{0};
struct sigaction app;  // what the application asked for
std::atomic<uint32_t> version{
    0};  // odd while `app` is being written: the handler reads without a lock

void take() {
  while (lock_word.exchange(1, std::memory_order_acquire)) sys::call(SYS_sched_yield);
}
void give() { lock_word.store(0, std::memory_order_release); }

void handler(int sig, siginfo_t* info, void* context) {
  struct sigaction now;
  uint32_t v;
  do {
    v = version.load(std::memory_order_acquire);
    now = app;
  } while ((v & 1) || version.load(std::memory_order_acquire) != v);
  wake_coordinator(kWantSignal);
  if (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN) {
    repair_eintr_by_code(static_cast<ucontext_t*>(context));
    return;
  }
  if (now.sa_flags & SA_RESETHAND) {
    app.sa_handler = SIG_DFL;
    app.sa_flags &= ~SA_SIGINFO;
  }
  if (now.sa_flags & SA_SIGINFO)
    now.sa_sigaction(sig, info, context);
  else
    now.sa_handler(sig);
}

// What the kernel is told: our handler with the application's mask and flags, or, when it has no
// handler, with all signals blocked (eintr.h).
void install() {
  sys::Sigaction k{};
  k.handler = reinterpret_cast<uint64_t>(handler);
  k.restorer = reinterpret_cast<uint64_t>(gpuckpt_sigreturn);
  if (app.sa_handler == SIG_DFL || app.sa_handler == SIG_IGN) {
    k.flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK | kSaRestorer;
    k.mask = ~0ull;
  } else {
    k.flags = SA_SIGINFO | kSaRestorer |
              (static_cast<uint64_t>(app.sa_flags) & (SA_RESTART | SA_ONSTACK | SA_NODEFER));
    __builtin_memcpy(&k.mask, &app.sa_mask, 8);
  }
  sys::sigaction(listened, &k, nullptr);
}

using SigactionFn = int (*)(int, const struct sigaction*, struct sigaction*);
SigactionFn real_sigaction() {
  static SigactionFn real;
  if (!real) real = reinterpret_cast<SigactionFn>(dlsym(RTLD_NEXT, "sigaction"));
  return real;
}

int change(const struct sigaction* act, struct sigaction* old) {
  // The caller's own handler for this signal must not run while the lock is held.
  uint64_t mask = sys::sigprocmask_all();
  take();
  if (old) *old = app;
  if (act) {
    version.fetch_add(1);
    app = *act;
    version.fetch_add(1);
    install();
  }
  give();
  sys::sigprocmask_set(mask);
  return 0;
}

int app_sigaction(int sig, const struct sigaction* act, struct sigaction* old) {
  if (sig == 0 || sig != listened) return real_sigaction()(sig, act, old);
  struct sigaction copy_of_act;  // act and old may be the same object
  if (act) copy_of_act = *act;
  return change(act ? &copy_of_act : nullptr, old);
}

sighandler_t app_signal(int sig, sighandler_t h, int flags) {
  struct sigaction act = {}, old = {};
  act.sa_handler = h;
  act.sa_flags = flags;
  if (!(flags & SA_RESETHAND)) sigaddset(&act.sa_mask, sig);
  return app_sigaction(sig, &act, &old) < 0 ? SIG_ERR : old.sa_handler;
}

// Programs that wait for the signal with sigwait instead of handling it trigger a snapshot as well.
void noticed(int sig) {
  if (sig > 0 && sig == listened) wake_coordinator(kWantSignal);
}

template <typename Fn>
Fn next(Fn& cache, const char* name) {
  if (!cache) cache = reinterpret_cast<Fn>(dlsym(RTLD_NEXT, name));
  return cache;
}

}  // namespace

void listen_to_signal(int sig) {
  real_sigaction()(sig, nullptr, &app);
  listened = sig;
  install();
}

void refresh_listened_signal() {
  if (listened) install();
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
  if (sig == 0 || sig != listened) return next(real, "signal")(sig, h);
  return app_signal(sig, h, SA_RESTART);
}
EXPORT sighandler_t bsd_signal(int sig, sighandler_t h) noexcept { return signal(sig, h); }
EXPORT sighandler_t ssignal(int sig, sighandler_t h) noexcept { return signal(sig, h); }
EXPORT sighandler_t __sysv_signal(int sig, sighandler_t h) noexcept {
  static sighandler_t (*real)(int, sighandler_t);
  if (sig == 0 || sig != listened) return next(real, "__sysv_signal")(sig, h);
  return app_signal(sig, h, SA_RESETHAND | SA_NODEFER);
}
EXPORT sighandler_t sysv_signal(int sig, sighandler_t h) noexcept { return __sysv_signal(sig, h); }

#define SIGWAIT(name, parameters, arguments, result_signal) \
  EXPORT int name parameters {                              \
    static int(*real) parameters;                           \
    int result = next(real, #name) arguments;               \
    if (listened) noticed(result_signal);                   \
    return result;                                          \
  }
SIGWAIT(sigwait, (const sigset_t* set, int* sig), (set, sig), result == 0 ? *sig : 0)
SIGWAIT(sigwaitinfo, (const sigset_t* set, siginfo_t* info), (set, info), result)
SIGWAIT(sigtimedwait, (const sigset_t* set, siginfo_t* info, const struct timespec* t),
        (set, info, t), result)
