// Handlers that run beside those of ir.h.
#pragma once

#include "ptx/run/ir.h"

namespace simgpu::ptx {

// Sets d to whether the generic address a is inside a .const variable of the module.
const Ins* op_is_constant(Ctx&, const Ins*);

}  // namespace simgpu::ptx
