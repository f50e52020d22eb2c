// restore and resume --gpu-map: which devices of this machine take the places of those that the
// program had.
//
// The program's device numbers stay. The driver itself puts its devices into another order, as
// CUDA_VISIBLE_DEVICES asks, which it reads in cuInit.
//
// Owner: none. Threads: the device worker of a restore or a suspend. Errors: the report's failure.
#pragma once

#include "intercept/spec/cuda_types.h"
#include "snapshot/api/device_plugin.h"

namespace gpuckpt::device {

// `map`: "A=B[,C=D...]". A: a device of the program, by its number there or by the UUID ("GPU-...")
// of the device it had; B: a device of this machine, by number or UUID. Others stay what they were.
// Before cuInit.
bool apply_gpu_map(const char* map, DeviceReport* report);

// The same for a process that lives: which of its GPUs becomes which, for the driver's
// own checkpoint. `pairs` has room for all devices, of which there are machine_facts.devices; `map`
// may be empty.
bool pair_gpus(const char* map, CUcheckpointGpuPair* pairs, DeviceReport* report);

}  // namespace gpuckpt::device
