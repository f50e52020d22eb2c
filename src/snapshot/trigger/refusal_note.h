// Where no thread can be started, none can answer the command line: then a symbolic link in the
// session folder, beside where the socket would be, says why. (To make a link takes no descriptor.)
//
// Owner: none. Threads: any, signal handlers too. Errors: none are told.
#pragma once

#include <stddef.h>

namespace gpuckpt {

// Async-signal-safe.
void leave_refusal_note(const char* text);
// Takes away the note that another process of this user and machine has left. False: there is none.
// (A process in a pid namespace below leaves it under its number outside, which is not found here.)
bool take_refusal_note(int pid, char* text, size_t room);

}  // namespace gpuckpt
