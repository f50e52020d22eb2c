// Variables of modules and libraries, as the application asked for them or as a snapshot found them
// in the image.
//
// A __managed__ variable belongs to the host and the device. The host may write it until all
// threads are parked, so it is copied then, into memory of the process that is part of the
// snapshot.
//
// Owner: the record of the module or library. Threads: the note functions take registry().lock, the
// others run on the device worker or PARKED. Errors: the report's failure; a variable without
// memory for its contents makes snapshots refuse.
#pragma once

#include <cstdint>

#include "snapshot/api/device_plugin.h"

namespace gpuckpt::device {

void note_library_global(uint64_t library, uint64_t context, const char* symbol, uint64_t address,
                         uint64_t size, bool managed = false);
void note_module_global(uint64_t module, const char* symbol, uint64_t address, uint64_t size,
                        bool managed = false);

// The library has its module in the context from now on: a replay makes it at this place of the
// order.
void note_instance(uint64_t library, uint64_t context);

// Gate closed: finds the variables that no call asked for.
bool learn_globals(DeviceReport* report);
// PARKED: what managed variables hold.
void copy_managed_variables();

}  // namespace gpuckpt::device
