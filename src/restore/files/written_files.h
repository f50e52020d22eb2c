// Files that the program had open for writing, or mapped writable.
//
// Owner: none. Threads: one. Errors: a Status, or -1.
#pragma once

#include <string>
#include <vector>

#include "restore/image/image.h"
#include "store/status.h"

namespace gpuckpt::restore {

// Which standard stream of the restore is this very file, open for at least `flags & O_ACCMODE`;
// -1: none. For a file that may not be opened here (the process that started the program opened it)
// this is the only way.
int standard_stream_of(const std::string& path, uint32_t flags);

// Sets aside what was written to a file after the snapshot, so that the program's next write
// continues where the snapshot left off and nothing is lost. A log that the job was started with is
// left as it is, whichever of its processes has it open. `members`: all of the job.
store::Status set_tails_aside(const std::vector<const Image*>& members);

}  // namespace gpuckpt::restore
