// Where not even a thread can be started, no thread can answer the command line: then a symbolic
// link in the session folder, beside where the socket would be, says why. (To make one takes no
// descriptor.)
//
// Owner: none. Threads: any, signal handlers too. Errors: none are told.
#pragma once

namespace gpuckpt {

// Async-signal-safe.
void leave_refusal_note(const char* text);

}  // namespace gpuckpt
