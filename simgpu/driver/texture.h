// Texture and surface objects. Their handles are numbers that kernels see: a slot in one table of
// the process, the lowest free one, so that equal creations give equal handles.
#pragma once

#include "../ptx/texture.h"
#include "context.h"

namespace simgpu {

// What kernels of the context may sample.
ptx::Images* images_of(Context&);

}  // namespace simgpu
