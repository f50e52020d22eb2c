// Green contexts: parts of a device's multiprocessors. A program asks a device (or a context) for
// its resources, splits them, makes a descriptor of some and a green context of that. Resources are
// plain bytes of the driver, which the program keeps wherever it likes; those of one process mean
// nothing in another. So each resource that the driver gave out is kept with the call it came from,
// the calls are made again at a restore, and a resource that the program passes on later is looked
// up.
//
// Owner: the registry. Threads: hooks, inside the gate, under registry().lock where a function says
// so; the restore's worker. Errors: the driver's result, or the report's failure.
#pragma once

#include "device/base/registry.h"
#include "snapshot/api/device_plugin.h"

namespace gpuckpt::device {

struct SplitObject;

struct ResourceObject : Object {  // kResource, without a name
  CUdevResource held = {};        // as the program has it
  CUdevResource now = {};         // as the driver of this generation has it
  // Where it came from: one of these.
  int device = -1;
  uint64_t of_context = 0, green = 0;  // names
  SplitObject* split = nullptr;
};

struct SplitObject : Object {  // kSplit, without a name
  ResourceObject* input = nullptr;
  unsigned asked = 0, flags = 0, least = 0;  // of the call
  Vector<ResourceObject*> groups;
  ResourceObject* rest = nullptr;
};

struct ResourceDescObject : Object {  // kResourceDesc
  Vector<ResourceObject*> resources;
  bool lost = false;  // the green context whose resources they were is gone
};

struct GreenObject : Object {  // kGreenContext; in its device's primary context
  ResourceDescObject* desc = nullptr;
  int device = 0;
  unsigned flags = 0;
  Vector<uint64_t> converted;  // names that cuCtxFromGreenCtx gave it
};

// The context (name) that what is made under the context `name` belongs to: for a converted green
// context the primary one. Takes no lock.
uint64_t owning_context(uint64_t name);
// The green context (name) that a converted one stands for; 0: it is none.
uint64_t green_of_converted(uint64_t name);
uint64_t converted_of_green(uint64_t green);
// A green context was converted to `converted`; it is in `context`. Registry lock held.
void list_converted(uint64_t converted, uint64_t context, uint64_t green);
void unlist_converted(uint64_t converted);
// The green context (name) that is current; 0: none.
uint64_t current_green_name();
// Whether the default streams of the green contexts in `context` (name) are idle.
CUresult query_green_streams(uint64_t context);

bool replay_resource(ResourceObject* r, DeviceReport* report);
bool replay_split(SplitObject* s, DeviceReport* report);
bool replay_resource_desc(ResourceDescObject* d, DeviceReport* report);
bool replay_green(GreenObject* g, DeviceReport* report);

}  // namespace gpuckpt::device
