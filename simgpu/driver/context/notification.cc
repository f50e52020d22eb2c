// Functions of the program that the driver calls: notifications of a device (which the simulated
// one never sends) and lines of the driver's log, which name the calls that it does not implement.
#include "driver/context/notification.h"

#include <stdio.h>
#include <string.h>

#include "driver/base/object.h"
#include "driver/base/state.h"
#include "driver/context/device.h"

namespace simgpu {
namespace {

class Notification : public Object {
 public:
  static constexpr Kind kKind = Kind::kNotification;
  Notification() : Object(kKind) {}
  int device = 0;
};

class LogCallback : public Object {
 public:
  static constexpr Kind kKind = Kind::kLogCallback;
  LogCallback(CUlogsCallback f, void* d) : Object(kKind), function(f), data(d) {}
  const CUlogsCallback function;
  void* const data;
};

Mutex mutex;
std::vector<LogCallback*>* callbacks;  // each holds a reference

}  // namespace

void tell_log(const char* text) {
  std::vector<Ref<LogCallback>> all;
  {
    Lock lock(mutex);
    for (size_t i = 0; callbacks && i < callbacks->size(); ++i)
      all.push_back(Ref<LogCallback>((*callbacks)[i]));
  }
  char line[256];
  snprintf(line, sizeof line, "%s", text);
  for (Ref<LogCallback>& c : all) c->function(c->data, CU_LOG_LEVEL_ERROR, line, strlen(line));
}

}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuDeviceRegisterAsyncNotification(CUdevice device, CUasyncCallback function, void*,
                                             CUasyncCallbackHandle* out) {
  ENTER(cuDeviceRegisterAsyncNotification);
  if (!device_of(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!function || !out) return CUDA_ERROR_INVALID_VALUE;
  auto* n = new Notification;
  n->device = device;
  state()->handles.add(n);
  *out = reinterpret_cast<CUasyncCallbackHandle>(n);
  return CUDA_SUCCESS;
}

SIMGPU_API cuDeviceUnregisterAsyncNotification(CUdevice device, CUasyncCallbackHandle handle) {
  ENTER(cuDeviceUnregisterAsyncNotification);
  Ref<Notification> n = state()->handles.get<Notification>(handle);
  if (!n || n->device != device || !state()->handles.remove(n.get()))
    return CUDA_ERROR_INVALID_VALUE;
  n->release();
  return CUDA_SUCCESS;
}

SIMGPU_API cuLogsRegisterCallback(CUlogsCallback function, void* data, CUlogsCallbackHandle* out) {
  ENTER(cuLogsRegisterCallback);
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  auto* c = new LogCallback(function, data);
  state()->handles.add(c);
  Lock lock(mutex);
  if (!callbacks) callbacks = new std::vector<LogCallback*>;
  callbacks->push_back(c);
  if (out) *out = reinterpret_cast<CUlogsCallbackHandle>(c);
  return CUDA_SUCCESS;
}

SIMGPU_API cuLogsUnregisterCallback(CUlogsCallbackHandle handle) {
  ENTER(cuLogsUnregisterCallback);
  Ref<LogCallback> c = state()->handles.get<LogCallback>(handle);
  if (!c || !state()->handles.remove(c.get())) return CUDA_ERROR_INVALID_VALUE;
  Lock lock(mutex);
  for (size_t i = 0; i < callbacks->size(); ++i) {
    if ((*callbacks)[i] != c.get()) continue;
    callbacks->erase(callbacks->begin() + static_cast<long>(i));
    c->release();
    break;
  }
  return CUDA_SUCCESS;
}
