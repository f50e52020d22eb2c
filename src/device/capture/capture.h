// Freezing, staging, draining: the device side of one snapshot. See snapshot/api/device_plugin.h
// for the contract.
//
// Owner: process-wide. Threads: the device worker, but for what says PARKED. Errors: the report's
// failure.
#pragma once

#include "device/hooks/hooks.h"

namespace gpuckpt::device {

bool freeze(uint64_t gate_ms, uint64_t deadline_ms, DeviceReport* report);
bool hold_first_call(uint64_t deadline_ms, DeviceReport* report);
// PARKED. Did something that `freeze` looked at change with the gate closed? A sentence, or null.
const char* changed_since_freeze();
bool precopy(CaptureSink* sink, uint64_t gate_ms, uint64_t deadline_ms, DeviceReport* report);
bool stage(CaptureSink* sink, DeviceReport* report);
bool drain(CaptureSink* sink, DeviceReport* report);
void commit_attempt(const char* id);
void abort_attempt();
bool suspend(uint64_t gate_ms, uint64_t deadline_ms, bool release, DeviceReport* report);
bool wake(const char* gpu_map, DeviceReport* report);

bool restore(RestoreSource* source, DeviceReport* report);

// Contexts that live, by name.
void live_contexts(Vector<uint64_t>* out);

// What a snapshot asks the driver about the live objects (gate closed, all idle), for replay to
// use.
bool learn_state(DeviceReport* report);

// What the machine must offer: recorded at a snapshot, compared at a restore.
struct DeviceFacts {
  char name[128];
  char uuid[48];   // "GPU-..."
  int capability;  // 90 is 9.0
  uint64_t total_memory;
};
struct MachineFacts {
  bool initialised;
  int driver_version;
  int devices;
  DeviceFacts device[kMaxDevices];
};
extern MachineFacts machine_facts;
// What cuInit takes from the driver's heap: the contexts of NVIDIA's driver are among it (r580), so
// a restore makes the same call in the same places.
extern RealmPlaces places_of_init;
bool learn_machine(MachineFacts* facts);

// A live context on `device`, by the driver's handle; null: none.
CUcontext any_context(int device);

// Writes the blob "device".
void describe_device(GrowingText* json);

// Forgets the stage of the process this one is an image of.
void stage_forget();

}  // namespace gpuckpt::device
