// The supervisor: everything that happens before the program's memory is put back. Ordinary
// C++, called by the command line. Reads the snapshot, checks whether this machine can hold it,
// prepares memory, files and namespaces, starts the launcher, and stays as the parent of the
// restored program.
//
// Owner: the command line. Threads: the main thread. Errors: a message on stderr and the class in
// the status file.
#pragma once

#include "restore/options.h"
#include "store/snapshot_reader.h"

namespace gpuckpt::restore {

// Returns the program's exit status (128 + signal when one ended it). Failures of restore itself
// are printed on stderr and return 125, with the class (ExitCode) in --status-file. --dry-run
// returns 0 or the class itself. `ran` (may be null): whether the program has come to run again.
int restore_snapshot(const store::SnapshotReader&, const Options&, bool* ran = nullptr);

}  // namespace gpuckpt::restore
