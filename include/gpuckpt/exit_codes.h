// Exit codes of every gpuckpt verb. A contract with users and scripts: never renumber.
#pragma once

namespace gpuckpt {

enum ExitCode : int {
  kExitOk = 0,
  kExitError = 1,          // anything without a class of its own
  kExitUsage = 2,          // the command line itself was wrong
  kExitWarnings = 3,       // done, but something deserves attention (printed on stderr)
  kExitAbsent = 10,        // store, snapshot, tag or process does not exist
  kExitLocked = 11,        // another writer or an exclusive lock is in the way
  kExitIncompatible = 12,  // this machine, driver, GPU or set of files cannot hold the snapshot
  kExitCorrupt = 13,       // stored bytes are damaged
  kExitRefused = 14,       // the process does something that could not be restored (named)
  kExitTimeout = 15,       // not possible before the deadline (the message names what prevented it)
  kExitLauncher = 125,     // run/restore: failure of gpuckpt itself, not of the program
  kExitInterrupted = 130,  // SIGINT
  kExitTerminated = 143,   // SIGTERM
};

}  // namespace gpuckpt
