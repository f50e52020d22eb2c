// The seam to the snapshot engine (snapshot/api/device_plugin.h).
#include "base/descriptors/handover.h"
#include "device/arena/vmm.h"
#include "device/base/settings.h"
#include "device/capture/capture.h"
#include "device/hooks/hooks.h"
#include "device/modules/variables.h"
#include "device/sharing/ipc.h"
#include "device/sharing/shareable.h"
#include "intercept/doors/foreign_driver.h"
#include "intercept/gate/gate.h"
#include "intercept/gate/step.h"
#include "intercept/realm/realm.h"

namespace gpuckpt {
namespace device {
namespace {

DevicePlugin::Mapping classify(uint64_t address, uint64_t end, uint64_t* until) {
  return realm_owns_first(address, end, until) ? DevicePlugin::Mapping::kSkip
                                               : DevicePlugin::Mapping::kKeep;
}

// All threads are parked: none writes what the host and the device share.
const char* park_obstacle() {
  if (!realm_is_consistent()) return "a thread of the driver was always in the middle of something";
  if (const char* what = changed_since_freeze()) return what;
  copy_managed_variables();
  vmm_copy_host();
  return nullptr;
}

void rewind(bool restore_follows) {
  realm_rewind();
  ipc_restart();
  if (restore_follows) return;
  handover_resume();
  gate_open();
}

constexpr DevicePlugin kPlugin = {
    .configure = read_settings,
    .active = realm_loaded,
    .freeze = freeze,
    .hold_first_call = hold_first_call,
    .precopy = precopy,
    .stage = stage,
    .resume = gate_open,
    .drain = drain,
    .commit_attempt = commit_attempt,
    .abort_attempt = abort_attempt,
    .suspend = suspend,
    .wake = wake,
    .park_obstacle = park_obstacle,
    .pinned = each_pinned,
    .classify = classify,
    .foreign = foreign_driver,
    .driver_thread = realm_driver_thread,
    .driver_fd = realm_owns_fd,
    .shareable = is_shareable,
    .shares = ipc_shares,
    .rewind = rewind,
    .forked = gate_after_fork,
    .step = step_begin,
    .restore = restore,
};

}  // namespace
}  // namespace device

const DevicePlugin* device_plugin = &device::kPlugin;

}  // namespace gpuckpt
