// Finds the allocation that a device address belongs to in a stored snapshot, and the code that
// made it, from the blob "device" (src/device/capture/capture.cc) and the stored host memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "store/snapshot_reader.h"

namespace gpuckpt::cli {

// The allocation or variable that holds `address` of device `ordinal`, as `device` lists it; null
// when none does.
nlohmann::json device_owner(const nlohmann::json& device, uint64_t ordinal, uint64_t address);

// Calls `see(ordinal, start, end, owner)` for each of them. A variable is reported for each device.
// `device` may be any JSON; entries of a wrong type are passed over.
void for_each_owner(
    const nlohmann::json& device,
    const std::function<void(uint64_t, uint64_t, uint64_t, const nlohmann::json&)>& see);

// The allocation as messages name it: "device allocation 0x7f.. of 4096 bytes".
std::string owner_name(const nlohmann::json& owner);

// The call stack that asked for an allocation: "function+0x12 (file+0x34)", innermost first, as far
// as it is known (device/base/call_sites.h).
std::vector<std::string> owner_site(const nlohmann::json& device, const nlohmann::json& owner,
                                    const store::SnapshotReader& reader);

}  // namespace gpuckpt::cli
