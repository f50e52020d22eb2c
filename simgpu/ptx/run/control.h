// Handlers of the parts that run beside ir.h's.
#pragma once

#include "ptx/run/ir.h"

namespace simgpu::ptx {

// d = is the generic address a within a .const variable of the module?
const Ins* op_is_constant(Ctx&, const Ins*);

}  // namespace simgpu::ptx
