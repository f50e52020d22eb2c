// Files that the program had open for writing, or mapped to write to them.
//
// Owner: none. Threads: one. Errors: a Status, or -1.
#pragma once

#include <string>
#include <vector>

#include "restore/preflight/image.h"
#include "store/status.h"

namespace gpuckpt::restore {

// Which of restore's own 0, 1 and 2 is this very file, open for at least `flags & O_ACCMODE`; -1:
// none. Of a file that may not be opened here (the process that started the program opened it) that
// is the only way.
int standard_stream_of(const std::string& path, uint32_t flags);

// What was written after the snapshot is set aside beside the file, so that the program's next
// write continues where the snapshot left off and nothing is lost. Of a log that the job was
// started with it stays, whichever of its processes has the log open. `members`: all of the job.
store::Status set_tails_aside(const std::vector<const Image*>& members);

}  // namespace gpuckpt::restore
