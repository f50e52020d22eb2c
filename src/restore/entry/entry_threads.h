// The threads of the restored process. Each is made anew on a small stack of ours, restores its own
// state (credentials last), waits, and returns through the signal frame in which it was parked.
//
// Owner: the State. Threads: the first thread makes the others; each one adopts its own state.
// Errors: die().
#pragma once

#include <atomic>
#include <cstddef>

#include "restore/entry/entry_state.h"

namespace gpuckpt::entry {

// Makes all threads but the first; returns when they wait for State::release.
void make_threads(restore::Plan*);

// Called in the thread itself: restores its state but for its credentials.
void adopt(RestoredThread*);
void wait_for(std::atomic<uint32_t>* word);  // until it is not 0
// Sets the credentials at State::take_credentials; returns when the thread may run.
void await_release(const RestoredThread&);
// Continues in the application.
[[noreturn]] void leave(RestoredThread*);

// Returns when all threads but those that the device waits for have their credentials.
void give_credentials();

// Reports capabilities that threads had and that this process may not give them. Called while the
// supervisor still listens.
void tell_lost_capabilities();

// When thread ids are new: makes glibc's locks name the new ids of their owners. Returns how many.
size_t rewrite_owners(const restore::Plan*);

}  // namespace gpuckpt::entry
