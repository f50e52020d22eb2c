// Work that needs libc or the driver runs on a short-lived pthread of its own, never while threads
// are parked.
//
// Owner: the caller waits, so the argument is its own. Threads: the coordinator. Errors: false.
#pragma once

namespace gpuckpt {

// For a thread that a thread of the library has made: lets through the signal by which glibc sets
// ids, which the mask that it inherited blocks, too.
void block_signals();

// Runs `work(argument)` on a new pthread (all signals blocked) and waits for its end. Called on the
// coordinator, whose thread descriptor is good enough for that. False: no thread could be made.
bool run_on_pthread(void (*work)(void*), void* argument);

}  // namespace gpuckpt
