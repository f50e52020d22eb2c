// Between graphs.cc, which records graphs, and graph_replay.cc, which makes them again.
//
// Owner: the registry. Threads: any that may call the driver; the registry's lock is taken here.
// Errors: 0: there is no context.
#pragma once

#include "device/base/registry.h"

namespace gpuckpt::device {

// The context (name) that works on an address: the current one when it is on the same device.
uint64_t context_for(CUdeviceptr to, CUdeviceptr from);

// The objects of one type, in the order of their creation.
template <typename T>
void each_of(ObjectType type, Vector<T*>* out) {
  MutexLock guard(registry().lock);
  for (Object* o = registry().first(); o; o = o->next)
    if (o->type == type) out->push(static_cast<T*>(o));
}

}  // namespace gpuckpt::device
