#pragma once

namespace simgpu {

// A line for the program's functions that listen to the driver's log.
void tell_log(const char* text);

}  // namespace simgpu
