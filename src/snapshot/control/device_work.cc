#include "snapshot/control/device_work.h"

#include "base/syscall.h"
#include "gpuckpt/exit_codes.h"
#include "snapshot/control/state.h"
#include "snapshot/control/worker.h"
#include "snapshot/job/barrier.h"
#include "snapshot/memory/track.h"
#include "snapshot/park/stopped_process.h"

namespace gpuckpt {

bool has_device() { return device_plugin && device_plugin->active && device_plugin->active(); }

bool DeviceWork::run(bool (DeviceWork::*step)(), const char* otherwise) {
  struct Call {
    DeviceWork* work;
    bool (DeviceWork::*step)();
    bool ok;
  } call{this, step, false};
  const auto on_pthread = [](void* argument) {
    auto* c = static_cast<Call*>(argument);
    c->ok = (c->work->*c->step)();
  };
  if (!run_on_pthread(on_pthread, &call))
    return snapshot->fail(kExitError, "no thread for the device's work could be made");
  const DeviceReport& r = snapshot->device_report;
  return call.ok ||
         snapshot->fail(r.code ? r.code : kExitError, "%s", r.text[0] ? r.text : otherwise);
}

bool DeviceWork::do_freeze() {
  DeviceReport& report = snapshot->device_report;
  frozen = device_plugin->freeze(library.config.gate_ms, deadline_ms, &report);
  active = report.active;
  return frozen;
}

bool DeviceWork::do_precopy() {
  staged = true;
  return device_plugin->precopy(producer, library.config.gate_ms, deadline_ms,
                                &snapshot->device_report) &&
         producer->flush();
}

bool DeviceWork::do_stage() {
  staged = true;
  tracker.ask_device();
  if (!device_plugin->stage(producer, &snapshot->device_report)) return false;
  // A program that is to stop will not run again to make way for the drain: everything goes now.
  // Nor will one that stops again (stopped_process.h).
  if (snapshot->stop || threads_are_held()) {
    if (!device_plugin->drain(producer, &snapshot->device_report)) return false;
    drained = true;
  }
  return producer->flush();
}

bool DeviceWork::do_freeze_and_stage() { return do_freeze() && (!active || do_stage()); }

bool DeviceWork::do_drain() {
  return device_plugin->drain(producer, &snapshot->device_report) && producer->flush();
}

namespace {
constexpr char kNotCaptured[] = "the device's memory could not be captured";
}

bool DeviceWork::precopy(uint64_t* deadline_us) {
  if (!has_device() || snapshot->stop || job_barrier.active()) return true;
  const uint64_t since = sys::now_us();
  report_phase(snapshot, "precopy");
  if (!run(&DeviceWork::do_precopy, kNotCaptured)) return false;
  if (snapshot->device_report.precopy_rounds) *deadline_us += sys::now_us() - since;
  deadline_ms = *deadline_us / 1000;
  return true;
}

bool DeviceWork::hold_first_call() {
  if (!device_plugin || has_device()) return false;
  frozen = device_plugin->hold_first_call(deadline_ms, &snapshot->device_report);
  return frozen;
}

bool DeviceWork::freeze() {
  return !device_plugin || hold_first_call() || run(&DeviceWork::do_freeze, kNotCaptured);
}

bool DeviceWork::stage() { return !active || run(&DeviceWork::do_stage, kNotCaptured); }

bool DeviceWork::freeze_and_stage() {
  return !device_plugin || hold_first_call() || run(&DeviceWork::do_freeze_and_stage, kNotCaptured);
}

bool DeviceWork::drain() {
  if (!active || drained) return true;
  return run(&DeviceWork::do_drain, "the device's staged memory could not be sent");
}

void DeviceWork::resume() {
  if (frozen) device_plugin->resume();
}

void DeviceWork::end(const char* id) {
  if (!staged) return;
  if (id)
    device_plugin->commit_attempt(id);
  else
    device_plugin->abort_attempt();
}

}  // namespace gpuckpt
