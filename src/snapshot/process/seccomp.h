// Programs that confine themselves (seccomp): from then on a signal handler of ours could be the
// end of a thread, because of the system calls that it makes.
//
// Owner: process-wide. Threads: the one that confines itself. Errors: none.
#pragma once

namespace gpuckpt {

// Before the program sets a filter, or enters strict mode. When a system call of ours could kill
// it, our handlers make none any more (Library::deaf).
void before_seccomp(bool strict, const void* program);
// It failed: nothing has changed.
void seccomp_failed();

}  // namespace gpuckpt
