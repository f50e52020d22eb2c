// Why a process cannot be asked for a snapshot, or would be harmed by the request.
#pragma once

#include <cstdint>
#include <string>

#include "store/status.h"

namespace gpuckpt::cli {

// Called before the process is signalled.
store::Status may_be_signalled(int pid);
// The reason why a process with libgpuckpt.so has no handler for the wake signal.
store::Status why_deaf(int pid);
// Checks that the process may open as many descriptors as an answer needs.
store::Status has_descriptors_to_answer(int pid);
// Called when the process has not answered for a moment. An error: it cannot answer, and why; Ok:
// it may still answer.
store::Status why_silent(int pid, uint64_t silent_ms);

// For a message: in which call its first thread is, which lets no signal through, or what else may
// keep it from an answer. Looks for a fifth of a second.
std::string what_keeps(int pid);

}  // namespace gpuckpt::cli
