// A parked thread was in a call with a relative time-out (poll, epoll_wait, ...). Executed again as
// it was, the call would wait for its whole time once more, and with snapshots more often than the
// time-out it would never end. So the thread continues in a call of ours with what is left of it.
//
// When the thread is interrupted for the first time it may have waited already, and the kernel does
// not tell for how long: the time begins then.
//
// Owner: the thread, on whose stack the record lies until the call ends. Threads: the parked one,
// with all signals blocked; raw system calls only. Errors: none; a call that is not recognised, or
// a stack without room, is left as it is, and its time starts over.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <cstdint>

namespace gpuckpt {

// The context is about to execute its call again (eintr.h). `info`: the siginfo_t in its signal
// frame, whose place the record takes.
void continue_wait(ucontext_t*, siginfo_t* info);

// Before the thread returns to its context: time has passed while it was parked.
void take_parked_time(ucontext_t*);

// In a restored process: what was left at the snapshot begins now.
void begin_rest(ucontext_t*);

// The number of the continued wait whose `syscall` instruction ends at `pc`; -1: none does.
long continued_call(uint64_t pc, uint64_t sp);

}  // namespace gpuckpt
