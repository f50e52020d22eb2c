#include "snapshot/calls/confinement.h"

#include <linux/keyctl.h>

#include <atomic>
#include <cstdint>

#include "base/syscall.h"
#include "base/text/log.h"
#include "base/text/text.h"
#include "gpuckpt/wire.h"
#include "snapshot/calls/libc_wrappers.h"
#include "snapshot/control/inherited.h"
#include "snapshot/control/state.h"

namespace gpuckpt {
namespace {

constexpr char kLandlockLetter = 'L', kKeyringLetter = 'K';

// Noted at the calls, on any thread, and true until the process ends.
std::atomic<bool> landlocked, own_session_keyring;

// Threads that have Syscall User Dispatch switched on. One that ends so counts on: to refuse is
// safe, to signal it is not.
std::atomic<uint32_t> dispatching;
[[gnu::tls_model("initial-exec")]] constinit thread_local bool t_dispatches = false;
bool deaf_for_dispatch;  // Library::deaf was set for these threads alone

void dispatch_has_ended() {
  if (deaf_for_dispatch) listen_again();
  deaf_for_dispatch = false;
}

}  // namespace

bool become_deaf(const char* why) {
  if (!library.ready || library.deaf) return false;
  log_line(LogLevel::kInfo, "the program %s: no snapshot from here on", why);
  library.deaf = true;
  // The command line sees that we no longer listen. Where glibc has its own handler for the signal,
  // ours stays in front of it and passes on what is not meant for us.
  if (!glibc_uses_wake_signal()) {
    sys::Sigaction ignore{};
    ignore.handler = 1;  // SIG_IGN
    sys::sigaction(wire::kWakeSignal, &ignore, nullptr);
  }
  return true;
}

void listen_again() {
  library.deaf = false;
  install_wake_handler();
}

void stay_deaf() { deaf_for_dispatch = false; }

bool confined_for_good(char* text, size_t room) {
  if (landlocked)
    copy(text, room,
         "the program has restricted itself with Landlock (landlock_restrict_self), and a restored "
         "program would run without these restrictions; run it without Landlock, or start gpuckpt "
         "inside of the restricted environment");
  return landlocked;
}

bool joined_session_keyring() { return own_session_keyring; }

void write_confinement(char* to, size_t room) {
  Text text(to, room);
  if (landlocked) text.add("%c", kLandlockLetter);
  if (own_session_keyring) text.add("%c", kKeyringLetter);
}

void read_confinement(const char* text) {
  for (; *text; ++text) {
    if (*text == kLandlockLetter) landlocked = true;
    if (*text == kKeyringLetter) own_session_keyring = true;
  }
}

void forget_dispatch() {
  t_dispatches = false;
  if (dispatching.exchange(0)) dispatch_has_ended();
}

}  // namespace gpuckpt

using namespace gpuckpt;

extern "C" long gpuckpt_landlock_restrict_self(long number, long ruleset, long flags) {
  const long r = gpuckpt_real_syscall(number, ruleset, flags);
  if (r == 0) {
    landlocked = true;
    note_confinement();
  }
  return r;
}

extern "C" long gpuckpt_keyctl(long number, long operation, long b, long c, long d, long e) {
  const long r = gpuckpt_real_syscall(number, operation, b, c, d, e);
  if (operation == KEYCTL_JOIN_SESSION_KEYRING && r > 0) {
    own_session_keyring = true;
    note_confinement();
  }
  return r;
}

// Before it is switched on no thread may be about to send this thread a signal: one that arrives
// would run our handler's system calls into the program's own handler.
extern "C" int gpuckpt_prctl_dispatch(int option, long mode, long from, long bytes,
                                      void* selector) {
  constexpr long kOff = 0;
  const bool first = mode != kOff && !t_dispatches && dispatching.fetch_add(1) == 0;
  if (first) deaf_for_dispatch = become_deaf("uses Syscall User Dispatch");
  const int r = gpuckpt_real_prctl(option, mode, from, bytes, selector);
  const bool on = r == 0 ? mode != kOff : t_dispatches;
  const bool counted = t_dispatches || mode != kOff;
  t_dispatches = on;
  if (counted && !on && dispatching.fetch_sub(1) == 1) dispatch_has_ended();
  return r;
}
