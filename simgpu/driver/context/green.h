// Green contexts: parts of a device's multiprocessors, as bookkeeping. A green context lives in its
// device's primary context and has streams of its own; cuCtxFromGreenCtx gives it a second handle
// that calls accept as a context.
#pragma once

#include "driver/context/context.h"
#include "driver/stream/stream.h"

namespace simgpu {

class GreenContext;

// The CUcontext of a green context.
class GreenAlias : public Object {
 public:
  static constexpr Kind kKind = Kind::kGreenAlias;
  explicit GreenAlias(GreenContext* g) : Object(kKind), green(g) {}
  GreenContext* const green;  // owns it
};

class GreenContext : public Object {
 public:
  static constexpr Kind kKind = Kind::kGreenContext;
  GreenContext(Ref<Context> c, unsigned n)
      : Object(kKind), primary(std::move(c)), primary_id(primary->id), multiprocessors(n) {}
  bool usable() const { return !gone.load() && primary->active() && primary->id == primary_id; }

  const Ref<Context> primary;
  const uint64_t primary_id;  // an activation of it
  const unsigned multiprocessors;
  const uint64_t id = fresh_id();
  Ref<GreenAlias> alias;
  Ref<Stream> standard;  // its default stream
  std::atomic<bool> gone{false};
};

// The one whose handle is current to the calling thread, or none.
Ref<GreenContext> current_green();

}  // namespace simgpu
