// Starts the writer so that the program never gets a child it did not ask for: the process that
// forked it ends at once, and the writer is an orphan. A program that takes orphans on
// (PR_SET_CHILD_SUBREAPER, or the first process of a container) would be given this one as well.
// There a keeper stays the writer's parent: a process that has our memory and nothing else of ours,
// and no exit signal, so that no wait of the program's finds it.
//
// Owner: keepers are noted per process. Threads: the I/O thread. Errors: -errno, or `error`.
#pragma once

namespace gpuckpt {

struct WriterStart {
  const char* path;
  char* const* argv;
  char* const* environment;
  int pidfd = -1;  // out, in the table of the thread that calls
  long error = 0;  // out: it could not be executed
};
// ON THE I/O THREAD. -errno: no process could be made.
long start_writer(WriterStart*);
// The user who will own what the writer makes: the one who started the program, who will restore
// it, also while the program is another one for the moment (seteuid). A program that has given up
// its rights for good keeps its own user.
unsigned writer_user();

// ON THE I/O THREAD, when the snapshot is over. Reaps keepers whose writers end within a moment;
// others are reaped the next time.
void reap_keepers();
// In a forked child and in a restored process: forgets them, because they are no children of this
// process.
void forget_keepers();

}  // namespace gpuckpt
