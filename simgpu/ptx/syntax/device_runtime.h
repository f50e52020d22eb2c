// Functions of NVIDIA's device runtime that a module declares and leaves to the linker.
#pragma once

#include "ptx/syntax/syntax.h"

namespace simgpu::ptx {

// Adds definitions for those that the engine supports. False: the module declares one of them
// differently (reported in `log`).
bool add_device_runtime(ModuleSyntax*, Log*);

}  // namespace simgpu::ptx
