// What becomes of a system call that our signal interrupted, when another signal comes while our
// handler runs, in which a thread may be parked.
//
// The thread executes its call again (eintr.h). A signal that waits is delivered before that: its
// handler would run, and the call begin anew, so that `alarm(1); pause();` waited for ever. Without
// us the call would have ended with EINTR, and so it does here.
//
// Owner: none. Threads: the interrupted one, with all signals blocked; raw system calls only.
// Errors: none; of what cannot be told for certain, the call is executed again.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <cstdint>

#include "snapshot/park/eintr.h"

namespace gpuckpt {

inline constexpr uint64_t kSignalsOfLibc = 3ull << 31;  // 32 and 33

// How another signal with a handler ends the call.
enum class CallEnd : uint32_t {
  kNever,           // no call was interrupted, or none that waits
  kWithoutRestart,  // by a handler without SA_RESTART
  kAlways,
};

// Makes the interrupted context execute its call again. `before`: what /proc said of the thread
// before it was interrupted.
CallEnd repair_call(ucontext_t*, const SyscallState& before);

// Before the thread returns to its context. `alone`: no other thread can take a signal of the
// process. True: the call has ended.
bool end_call_if_signalled(ucontext_t*, CallEnd, bool alone);

// At the end of a handler of ours that the program shall not notice, and in which no thread is
// parked: the call that it interrupted, if any, continues, or ends by another signal. `info`: the
// siginfo_t in the context's signal frame.
void continue_call(ucontext_t*, siginfo_t* info);

// Of several threads: gives each signal that waits for the process, and has a handler, to the
// thread that the kernel would have chosen; which, `thread_for` says (0: none). On a thread of
// ours, before the others continue.
void direct_signals(int (*thread_for)(int sig));

// The signals that the context blocks.
uint64_t blocked_in(const ucontext_t&);

}  // namespace gpuckpt
