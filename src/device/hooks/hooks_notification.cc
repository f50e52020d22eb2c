// Registering and unregistering of functions that the driver calls. See notifications.h.
#include "device/capture/capture.h"
#include "device/objects/notifications.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt {
namespace device {
namespace {

// Registered by a replay: the program shall see the handle that it knows.
void notify_by_name(CUasyncNotificationInfo* info, void* data, CUasyncCallbackHandle) {
  auto* n = static_cast<NotificationObject*>(data);
  n->notify(info, n->data, handle_from<CUasyncCallbackHandle>(n->name));
}

void end(uint64_t name, ObjectType type) {
  MutexLock guard(registry().lock);
  if (auto* n = registry().find<NotificationObject>(type, name)) registry().remove(n);
}

}  // namespace

bool replay_notification(NotificationObject* n, DeviceReport* report) {
  CUresult result;
  if (n->log) {
    CUlogsCallbackHandle now = nullptr;
    result = real().cuLogsRegisterCallback(n->log, n->data, &now);
    bind(Kind::kLogsCallback, n->name, bits(now));
  } else {
    CUasyncCallbackHandle now = nullptr;
    result = real().cuDeviceRegisterAsyncNotification(n->device, notify_by_name, n, &now);
    bind(Kind::kAsyncCallback, n->name, bits(now));
  }
  return result == CUDA_SUCCESS ||
         report->fail(kExitIncompatible,
                      "a function for the driver to call (%s) cannot be registered again (%d)",
                      n->log ? "cuLogsRegisterCallback" : "cuDeviceRegisterAsyncNotification",
                      static_cast<int>(result));
}

}  // namespace device

using namespace device;

CUresult hook_cuDeviceRegisterAsyncNotification(CUdevice device, CUasyncCallback callbackFunc,
                                                void* userData, CUasyncCallbackHandle* callback) {
  CUresult result =
      real().cuDeviceRegisterAsyncNotification(device, callbackFunc, userData, callback);
  if (result != CUDA_SUCCESS) return result;
  uint64_t name = new_name(Kind::kAsyncCallback, *callback);
  MutexLock guard(registry().lock);
  auto* n = registry().add<NotificationObject>(ObjectType::kNotification, name, 0);
  if (!n) return result;
  n->device = device;
  n->notify = callbackFunc;
  n->data = userData;
  return result;
}
CUresult hook_cuDeviceUnregisterAsyncNotification(CUdevice device, CUasyncCallbackHandle callback) {
  uint64_t name = name_from(Kind::kAsyncCallback, callback);
  CUresult result = real().cuDeviceUnregisterAsyncNotification(device, callback);
  if (result == CUDA_SUCCESS) end(name, ObjectType::kNotification);
  return result;
}

CUresult hook_cuLogsRegisterCallback(CUlogsCallback callbackFunc, void* userData,
                                     CUlogsCallbackHandle* callback_out) {
  CUresult result = real().cuLogsRegisterCallback(callbackFunc, userData, callback_out);
  if (result != CUDA_SUCCESS || !callback_out) return result;
  uint64_t name = new_name(Kind::kLogsCallback, *callback_out);
  MutexLock guard(registry().lock);
  auto* n = registry().add<NotificationObject>(ObjectType::kLogCallback, name, 0);
  if (!n) return result;
  n->log = callbackFunc;
  n->data = userData;
  return result;
}
CUresult hook_cuLogsUnregisterCallback(CUlogsCallbackHandle callback) {
  uint64_t name = name_from(Kind::kLogsCallback, callback);
  CUresult result = real().cuLogsUnregisterCallback(callback);
  if (result == CUDA_SUCCESS) end(name, ObjectType::kLogCallback);
  return result;
}

}  // namespace gpuckpt
