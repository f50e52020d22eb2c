// The final link's own translation unit: who provides the device side.
#include "snapshot/device_plugin.h"

namespace gpuckpt {
// Defined by src/device when that is linked in.
__attribute__((weak)) const DevicePlugin* device_plugin = nullptr;
}  // namespace gpuckpt
