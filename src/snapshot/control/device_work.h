// The device's part of an attempt. Each step runs on a short-lived pthread of ours, because the
// driver needs one; the application's threads are running.
//
// Errors: a step that fails leaves code and text in the snapshot, and the gate open unless `frozen`
// says otherwise.
// Owner: the attempt. Threads: the coordinator.
#pragma once

#include "snapshot/api/device_plugin.h"
#include "snapshot/control/snapshot.h"
#include "snapshot/io/ring.h"

namespace gpuckpt {

// Whether there is a driver with state in this process.
bool has_device();

struct DeviceWork {
  Snapshot* snapshot;
  Producer* producer;
  uint64_t deadline_ms;
  bool active = false;   // there is a driver with state
  bool drained = false;  // nothing of it waits to be sent
  bool frozen = false;   // the gate is closed
  bool staged = false;   // the plugin has to hear how the attempt ended

  // Sends, before the stop, memory that there is no room to copy and that would prolong the stop.
  // The time that this takes does not count as time for the snapshot: *deadline_us moves. Not for a
  // job, where another process may be writing the same memory.
  bool precopy(uint64_t* deadline_us);
  bool freeze();  // devices at rest
  bool stage();   // what changed of their memory out of the way
  bool freeze_and_stage();
  bool drain();   // what was staged is sent; the application runs
  void resume();  // PARKED. Opens the gate, if it is closed.
  // `id`: of the snapshot that came of it; null: none did.
  void end(const char* id);

 private:
  bool run(bool (DeviceWork::*step)(), const char* otherwise);
  // All that `freeze` has to do where there is no driver: true. A failure is left to do_freeze,
  // which meets it again and reports it.
  bool hold_first_call();
  bool do_precopy(), do_freeze(), do_stage(), do_freeze_and_stage(), do_drain();
};

}  // namespace gpuckpt
