#include "device/base/each_device.h"

#include <pthread.h>

#include "device/capture/capture.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/gate/gate.h"

namespace gpuckpt::device {
namespace {

struct Worker {
  DeviceStep step;
  void* context;
  int device;
  bool ok, threaded;
  pthread_t thread;
  DeviceReport report;
  void run() { ok = step(context, device, &report); }
  static void* start(void* worker) {
    gate_bypass_this_thread();
    static_cast<Worker*>(worker)->run();
    return nullptr;
  }
};

void add(DeviceReport* to, const DeviceReport& from) {
  to->device_bytes += from.device_bytes;
  to->moved_bytes += from.moved_bytes;
  to->staged_bytes += from.staged_bytes;
  to->precopy_bytes += from.precopy_bytes;
  to->allocations += from.allocations;
  if (from.hash_us > to->hash_us) to->hash_us = from.hash_us;
}

}  // namespace

bool each_device(DeviceStep step, void* context, DeviceReport* report) {
  const int devices = machine_facts.devices;
  auto* workers =
      static_cast<Worker*>(allocate(sizeof(Worker) * static_cast<size_t>(devices ? devices : 1)));
  if (!workers) return report->fail(kExitError, "no memory for a worker for each device");
  bool others = false;
  for (int i = 0; i < devices; ++i) {
    Worker& w = workers[i];
    w.step = step;
    w.context = context;
    w.device = i;
    if (!any_context(i)) continue;
    w.threaded = others && pthread_create(&w.thread, nullptr, Worker::start, &w) == 0;
    others = true;
  }
  for (int i = 0; i < devices; ++i)
    if (!workers[i].threaded) workers[i].run();
  bool ok = true;
  for (int i = 0; i < devices; ++i) {
    Worker& w = workers[i];
    if (w.threaded) pthread_join(w.thread, nullptr);
    add(report, w.report);
    if (ok && !w.ok) report->fail(w.report.code, "%s", w.report.text);
    ok &= w.ok;
  }
  release(workers);
  return ok;
}

}  // namespace gpuckpt::device
