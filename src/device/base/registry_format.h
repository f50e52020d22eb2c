// The blob "device" of a snapshot: what tools may know of the device side. JSON text, one object:
//
//   format          kDeviceBlobFormat. Fields are only added; a change of meaning raises it.
//   driver_version  of the API, as cuDriverGetVersion gives it (13000)
//   devices[]       name, ordinal, total_bytes, used_bytes (backed by memory),
//     reservations[]  address ("0x..."), bytes: what a restore must be able to reserve
//     allocations[]   address, bytes, kind: "device" or "pool"
//   pinned_bytes    host memory from cuMemHostAlloc and cuMemAllocManaged
//   variables[]     name, address, bytes: must be at the same address after a restore
//   objects         counts by type
//
// A restore does not read it: the registry itself is process memory and comes back with the
// process. `gpuckpt restore --dry-run` compares it with the machine; `inspect --allocations` shows
// it.
//
// Owner: none, a description. Threads: any. Errors: none; a reader refuses a format that it does
// not know.
#pragma once

namespace gpuckpt::device {

inline constexpr int kDeviceBlobFormat = 1;  // do not change what 1 means

}  // namespace gpuckpt::device
