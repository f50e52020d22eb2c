// The threads of the restored process: each is made anew on a small stack of ours, takes back what
// it had (credentials last), waits, and leaves by the signal frame in which it was parked.
//
// Owner: the State. Threads: the first thread makes the others; each one adopts its own state.
// Errors: die().
#pragma once

#include <atomic>
#include <cstddef>

#include "restore/entry/entry_state.h"

namespace gpuckpt::entry {

// Makes all but the first, and returns when they wait for State::release.
void make_threads(restore::Plan*);

// In the thread itself: all that it had but its credentials.
void adopt(RestoredThread*);
void wait_for(std::atomic<uint32_t>* word);  // until it is not 0
// Takes its credentials at State::take_credentials, and returns when it may run.
void await_release(const RestoredThread&);
// Continues in the application.
[[noreturn]] void leave(RestoredThread*);

// Returns when all threads but those that the device waits for have their credentials.
void give_credentials();

// Capabilities that threads had and that this process may not give them: said while the restore
// driver still listens.
void tell_lost_capabilities();

// With new thread ids: locks of glibc that name their owner by id name the new one. How many.
size_t rewrite_owners(const restore::Plan*);

}  // namespace gpuckpt::entry
