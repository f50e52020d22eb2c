// Functions of the program that the driver calls when something happens: asynchronous notifications
// of a device, lines of the driver's log.
//
// Owner: the registry. Threads: the restore's worker. Errors: the report's failure.
#pragma once

#include "device/base/registry.h"
#include "snapshot/api/device_plugin.h"

namespace gpuckpt::device {

struct NotificationObject : Object {
  int device = -1;  // of a notification
  CUasyncCallback notify = nullptr;
  CUlogsCallback log = nullptr;
  void* data = nullptr;
};

bool replay_notification(NotificationObject* n, DeviceReport* report);

}  // namespace gpuckpt::device
