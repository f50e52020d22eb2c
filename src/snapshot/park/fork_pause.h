// Descriptors that the library makes in the application's table and has not noted yet are nothing
// that a forked child would know to close. So nobody forks meanwhile.
#pragma once

namespace gpuckpt {

// ON THE COORDINATOR, for microseconds: while it lives nobody forks by libc. Where a fork takes
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
void fork_pause_after_fork();  // in the child: nobody else forks there

}  // namespace gpuckpt
