// `run --resume auto`: the newest snapshot of the job, restored in place of a new start.
#pragma once

#include <string>

#include "store/status.h"

namespace gpuckpt::cli {

struct ResumeOptions {
  std::string store, mirror, job, status_file;  // mirror: asked when the store has none of the job
};

// *found = false: there is nothing to resume from, so the program is started anew. Otherwise this
// process becomes `gpuckpt restore`, or the call fails.
store::Status resume_job(const ResumeOptions& options, bool* found);

}  // namespace gpuckpt::cli
