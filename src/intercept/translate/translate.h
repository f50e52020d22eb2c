// Names: the application holds the value that the driver gave out first (the name); after a restore
// the driver's own value (now) is another one. Generation 0: identity, one predictable branch.
// Later: lock-free hash lookups. A handle that has no entry is its own name. NULL and the small
// magic values (CU_STREAM_LEGACY = 1, CU_STREAM_PER_THREAD = 2) pass. Device pointers are never
// translated.
//
// Generated wrappers translate: arguments in, hook or driver, results out. Hooks therefore see REAL
// handles, and use name_of() where the registry must know the object by the application's name.
//
// Owner: process-wide tables, part of every snapshot. Threads: lookups from any thread without a
// lock; changes take a lock of their own. Errors: none; a handle without an entry is its own name.
#pragma once

#include "intercept/spec/cuda_types.h"

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "intercept/gate/gate.h"

namespace gpuckpt {

enum class Kind : uint8_t {
  kNone,
  kContext,
  kStream,
  kEvent,
  kModule,
  kFunction,
  kLibrary,
  kKernel,
  kPool,
  kArray,
  kMipmappedArray,
  kTexref,
  kSurfref,
  kTexObject,
  kSurfObject,
  kGraph,
  kGraphNode,
  kGraphExec,
  kGraphicsResource,
  kUserObject,
  kLinkState,
  kExternalMemory,
  kExternalSemaphore,
  kGreenCtx,
  kMemHandle,
  kAsyncCallback,
  kLogsCallback,
  kLogIterator,
  kDevResourceDesc,
  kConditionalHandle,
  kCount,
};

// Lookups, any thread, no lock.
uint64_t now_of(Kind, uint64_t name);  // name -> the driver's value
uint64_t name_of(Kind, uint64_t now);  // the driver's value -> name
bool name_bound(Kind, uint64_t name);

// Changes. Own lock, private memory.
void bind(Kind, uint64_t name, uint64_t now);
void drop(Kind, uint64_t name);
// Around a call that ends the object `name`, when names are in use. The driver may give its value
// to another thread before the call returns, so the name is unbound before it; inside the call this
// thread still finds it. Bound again when the call fails.
class EndingName {
 public:
  EndingName(bool names, ThreadRecord* thread, Kind kind, uint64_t name);
  ~EndingName();
  EndingName(const EndingName&) = delete;
  EndingName& operator=(const EndingName&) = delete;
  uint64_t now() const { return now_; }
  void ended() { ended_ = true; }  // the call succeeded

 private:
  ThreadRecord* thread_;
  Kind kind_;
  uint64_t name_, now_;
  bool unbound_ = false, ended_ = false;
};
// A new object: its name. Usually `now` itself; when that is already some other object's name, a
// fresh one. Idempotent. The generated wrappers of creating calls do it; hooks may do it earlier.
uint64_t name_new(Kind, uint64_t now);
// PARKED: all entries' `now` become unknown at a rewind: forgets every entry. Device binds again
// while replaying.
void translate_forget_all();

inline bool translating() {
  return __builtin_expect(gate_detail::g_gate.translate.load(std::memory_order_relaxed) != 0, 0);
}

// Typed forms.
template <class H>
inline uint64_t handle_bits(H h) {
  if constexpr (std::is_pointer_v<H>)
    return reinterpret_cast<uint64_t>(h);
  else
    return static_cast<uint64_t>(h);
}
template <class H>
inline H handle_from(uint64_t bits) {
  if constexpr (std::is_pointer_v<H>)
    return reinterpret_cast<H>(bits);
  else
    return static_cast<H>(bits);
}
template <class H>
inline H in(Kind kind, H name) {
  return translating() ? handle_from<H>(now_of(kind, handle_bits(name))) : name;
}
template <class H>
inline H out(Kind kind, H now) {
  return translating() ? handle_from<H>(name_of(kind, handle_bits(now))) : now;
}
template <class H>
inline H created(Kind kind, H now) {
  return translating() ? handle_from<H>(name_new(kind, handle_bits(now))) : now;
}
template <class H>
inline void bind(Kind kind, H name, H now) requires(std::is_pointer_v<H>) {
  bind(kind, handle_bits(name), handle_bits(now));
}
template <class H>
inline void drop(Kind kind, H name) requires(std::is_pointer_v<H>) {
  drop(kind, handle_bits(name));
}

}  // namespace gpuckpt
