// verify --replay: restores a snapshot twice and compares what the two runs compute.
#pragma once

#include <string>

#include "verb.h"

namespace gpuckpt::cli {

struct ReplayOptions {
  std::string reference;
  uint64_t run_ms = 2000;       // how long the first run lasts
  uint64_t timeout_ms = 60000;  // for the second run to make as many calls, and for each snapshot
};

// Restores it, lets it run, takes a snapshot; restores it again, lets it make as many calls that
// change something on a device, takes a snapshot; compares the contents of the devices. The program
// really runs, twice: what it sends and what files it makes is done twice. Files it has open for
// writing are private copies. Differences: kExitWarnings, and the first of them on stdout.
Status verify_replay(const ReplayOptions& options, Context* context);

}  // namespace gpuckpt::cli
