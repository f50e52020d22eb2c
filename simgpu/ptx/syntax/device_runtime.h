// Functions of NVIDIA's device runtime that a module declares and leaves to the linker.
#pragma once

#include "ptx/syntax/syntax.h"

namespace simgpu::ptx {

// Defines those that we have. False: the module's own text declares them otherwise (told in `log`).
bool add_device_runtime(ModuleSyntax*, Log*);

}  // namespace simgpu::ptx
