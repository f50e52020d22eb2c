// The signals that we listen to in place of the program (SIGUSR1, SIGTERM).
//
// Owner: none. Threads: any; async-signal-safe. Errors: none.
#pragma once

#include <signal.h>

namespace gpuckpt {

// Do we listen to it, in place of the program's own handler?
bool is_listened(int sig);
// A listened one: will the program's own handler run for it, and nothing of it be hidden?
bool is_for_program(int sig, const siginfo_t*);

// Installs our handlers again, when they may not run on signal stacks any more.
void listen_on_own_stacks();

// Around exec: the kernel passes on to the new program that a signal is ignored, but not that our
// handler would have ignored it.
unsigned ignore_what_program_ignores();  // before exec: which there are
void listen_again(unsigned which);       // after one that failed

}  // namespace gpuckpt
