// `run --resume auto`: the newest snapshot of the job, restored in place of a new start.
#pragma once

#include <string>

#include "store/status.h"

namespace gpuckpt::cli {

// *found = false: there is nothing to resume from, start anew. Otherwise becomes `gpuckpt restore`,
// or fails.
store::Status resume_job(const std::string& store, const std::string& job,
                         const std::string& status_file, bool* found);

}  // namespace gpuckpt::cli
