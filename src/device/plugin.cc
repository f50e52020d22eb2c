// The seam to the snapshot engine (snapshot/device_plugin.h).
#include "device/capture.h"
#include "device/hooks.h"
#include "device/ipc.h"
#include "device/settings.h"
#include "device/shareable.h"
#include "device/variables.h"
#include "device/vmm.h"
#include "intercept/gate.h"
#include "intercept/realm.h"
#include "intercept/step.h"

namespace gpuckpt {
namespace device {
namespace {

DevicePlugin::Mapping classify(uint64_t address, uint64_t end, uint64_t* until) {
  return realm_owns_first(address, end, until) ? DevicePlugin::Mapping::kSkip
                                               : DevicePlugin::Mapping::kKeep;
}

// Everybody is parked: nobody writes what the host and the device share.
const char* quiet() {
  if (!realm_quiet()) return "a thread of the driver was always in the middle of something";
  copy_managed_variables();
  vmm_copy_host();
  return nullptr;
}

void rewind() {
  realm_rewind();
  ipc_restart();
}

constexpr DevicePlugin kPlugin = {
    .configure = read_settings,
    .active = realm_loaded,
    .freeze = freeze,
    .ahead = ahead,
    .stage = stage,
    .thaw = gate_open,
    .drain = drain,
    .settle = settle,
    .suspend = suspend,
    .wake = wake,
    .quiet = quiet,
    .pinned = each_pinned,
    .classify = classify,
    .driver_thread = realm_driver_thread,
    .driver_fd = realm_owns_fd,
    .shareable = is_shareable,
    .shares = ipc_shares,
    .rewind = rewind,
    .step = step_begin,
    .restore = restore,
};

}  // namespace
}  // namespace device

const DevicePlugin* device_plugin = &device::kPlugin;

}  // namespace gpuckpt
