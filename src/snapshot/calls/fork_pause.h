// Descriptors that the library makes in the application's table and has not noted yet are nothing
// that a forked child would know to close. So no thread forks meanwhile.
//
// Owner: an object's lifetime on the coordinator. Threads: forking threads wait. Errors: none; a
// fork that takes too long is not waited for.
#pragma once

namespace gpuckpt {

// ON THE COORDINATOR, for microseconds: while it lives no thread forks by libc. Where a fork takes
// longer than a second it gives up, and does nothing.
class ForkPause {
 public:
  ForkPause();
  ~ForkPause();
  ForkPause(const ForkPause&) = delete;
  ForkPause& operator=(const ForkPause&) = delete;
};

// Around each fork, on the thread that forks. The first one waits for a pause to end.
void fork_begins();
void fork_ends();
void fork_pause_after_fork();  // in the child: no other thread forks there

}  // namespace gpuckpt
