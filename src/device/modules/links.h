// Linker sessions (cuLink*): what the program added to them, so that an open one can continue after
// a restore.
//
// Owner: the registry. Threads: registry().lock, or the restore's worker. Errors: the report's
// failure.
#pragma once

#include "device/base/registry.h"
#include "snapshot/api/device_plugin.h"

namespace gpuckpt::device {

struct LinkInput {
  CUjitInputType type;
  char* name;
  uint8_t* bytes;
  uint64_t size;
};

struct LinkObject : Object {
  Vector<Option> options;
  Vector<LinkInput> inputs;
  bool complete = false;  // nothing goes in any more
  uint8_t* output =
      nullptr;           // what came out, for the program: the driver's copy ends with a restore
  bool reports = false;  // the driver writes into the program's memory when it completes
};
void free_inputs(LinkObject* link);

// A session that reports when it completes cannot be made again in the middle: snapshots wait.
bool link_reports_later();
bool replay_link(LinkObject* link, DeviceReport* report);

}  // namespace gpuckpt::device
