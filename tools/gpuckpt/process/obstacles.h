// What keeps a process from being asked for anything, or would make asking harm it.
#pragma once

#include <cstdint>

#include "store/status.h"

namespace gpuckpt::cli {

// Before the process is signalled.
store::Status may_be_signalled(int pid);
// It has libgpuckpt.so, but no handler for our signal.
store::Status why_deaf(int pid);
// May it have as many descriptors as an answer takes?
store::Status has_descriptors_to_answer(int pid);
// It has not answered for a moment: is it clear that it cannot? Ok: it may still answer.
store::Status why_silent(int pid, uint64_t silent_ms);

}  // namespace gpuckpt::cli
