// Steps: calls of the application that change something on a device (allocations, copies, launches;
// no queries, no waits), counted, and stopped before a given one. For `gpuckpt verify --replay`,
// which runs a restored program twice up to the same call. Off in every other process, where it
// costs nothing: only the slow way through the gate looks here, and stepping makes every entry
// slow.
//
// Owner: process-wide. Threads: any; begin and end: one of ours. Errors: false when the deadline
// passes first.
#pragma once

#include <cstdint>

namespace gpuckpt {

inline constexpr uint64_t kNoStepLimit = ~uint64_t{0};

// PARKED, gate closed: counts from here on; the call behind the `limit`th waits at the gate.
void step_begin(uint64_t limit);
void step_end();
bool stepping();
uint64_t step_count();

// Gate open: waits until a thread has reached the call that may not pass; without a limit the next
// one becomes it. False: the limit was not reached by `until_us` (CLOCK_MONOTONIC). A program that
// has reached it and makes no further call counts as one that waits: true after a while.
bool step_finish(uint64_t until_us);

// For the gate: may the calling thread make this call now?
bool step_pass(uint32_t function);

}  // namespace gpuckpt
