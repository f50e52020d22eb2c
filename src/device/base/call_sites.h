// Where allocations were made: what on the calling thread's stack looks like return addresses, at
// the time of the call. A guess that costs a fraction of a microsecond; its reader (verify
// --replay) drops the addresses that do not follow a call instruction.
//
// Owner: process-wide. Threads: any, under a lock of its own. Errors: 0: not known.
#pragma once

#include <cstdint>

#include "base/text/json_writer.h"

namespace gpuckpt::device {

// Number of the place the calling thread is called from; 0: unknown, or too many different ones.
// Takes a lock of its own for a moment.
uint32_t call_site();

// The JSON array of all call sites: [["0x..",...],...], number 1 first.
void describe_call_sites(JsonWriter* json);

}  // namespace gpuckpt::device
