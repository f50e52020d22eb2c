// Times of events across restores. Every context has a clock in milliseconds; `time_base` is an
// event of the driver that was recorded at a known time of it. Before the first restore nothing of
// this is used.
//
// Owner: the contexts' and events' records. Threads: registry().lock, as each function says.
// Errors: the driver's answer, in `result`.
#pragma once

#include "device/base/registry.h"

namespace gpuckpt::device {

extern uint32_t remembered_events;  // how many events' times come from `at_ms`

// Registry lock held. The time of a recorded event of this generation. False: `result` is the
// driver's answer.
bool event_time(uint64_t context, CUevent event, double* at_ms, CUresult* result);
// Takes the lock. True when one of the two was recorded before the last restore; `result` and `ms`
// then answer.
bool elapsed_across_restore(float* ms, CUevent start, CUevent end, CUresult* result);

}  // namespace gpuckpt::device
