// The signals that we listen to, around exec: the kernel passes on to the new program that a signal
// is ignored, but not that our handler would have ignored it.
//
// Owner: none. Threads: any; async-signal-safe. Errors: none.
#pragma once

namespace gpuckpt {

unsigned ignore_what_program_ignores();  // before exec: which there are
void listen_again(unsigned which);       // after one that failed

}  // namespace gpuckpt
