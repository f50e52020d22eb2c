// User objects: an object of the program that lives as long as a graph needs it. The driver calls
// the program's destructor when the last reference is released, so every reference is followed
// here: the program's own, those of its graphs and of their executables.
//
// Owner: the registry; what waits for a graph belongs to the capturing thread's graph. Threads:
// registry().lock, but for `gone`, which is set on whatever thread the driver destroys on. Errors:
// the driver's result, or the report's failure.
#pragma once

#include "device/base/registry.h"
#include "snapshot/api/device_plugin.h"

namespace gpuckpt::device {

struct UserObject : Object {
  uint64_t id = 0;  // never used again, as a handle may be
  void* pointer = nullptr;
  CUhostFn destroy = nullptr;
  unsigned flags = 0;
  uint64_t references = 0;  // the program's
  bool gone = false;        // destroyed
};

struct HeldUser {
  uint64_t id;
  unsigned count;
};
using HeldUsers = Vector<HeldUser>;

// A graph that the registry does not list yet (a capture is making it) holds what is kept here
// until it is listed.
void take_pending_users(uint64_t graph, HeldUsers* out);
void drop_pending_users();  // the capture failed
bool users_pending();

void add_users(HeldUsers* to, const HeldUsers& from);

// Makes all user objects again, with one reference of ours each, which drop_spare_references() ends
// when the graphs have got theirs.
bool replay_users(DeviceReport* report);
CUresult hold_users(CUgraph graph, const HeldUsers& users);
void drop_spare_references();

}  // namespace gpuckpt::device
