// Objects that the API names by a handle. A handle is the object's address (a malloc block) and is
// valid only while it is in the table under its kind: stale, foreign and invented handles are
// recognised and never dereferenced.
#pragma once

#include <vector>

#include "driver/base/base.h"

namespace simgpu {

enum class Kind : uint8_t {
  kContext,
  kStream,
  kEvent,
  kModule,
  kFunction,
  kLibrary,
  kKernel,
  kPool,
  kPhysical,
  kLink,
  kGraph,
  kGraphNode,
  kGraphExec,
  kUserObject,
  kArray,
  kMipmap,
  kTexture,
  kSurface,
  kTextureReference,
  kSurfaceReference,
  kGreenContext,
  kGreenAlias,
  kResourceDesc,
  kNotification,
  kLogCallback,
};

class Object : public RefCounted {
 public:
  explicit Object(Kind k) : kind(k) {}
  const Kind kind;
  static void* operator new(size_t);  // at an address that differs from process to process
  static void operator delete(void*);
};

class HandleTable {
 public:
  void add(Object*);     // takes no reference
  bool remove(Object*);  // false: was not there. The caller still holds its reference.
  bool contains(const void* handle, Kind);

  // A reference that keeps the object alive through a call, or null.
  template <class T>
  Ref<T> get(const void* handle) {
    return Ref<T>::adopt(static_cast<T*>(acquire(handle, T::kKind)));
  }

 private:
  Object* acquire(const void* handle, Kind);
  size_t slot(const void*) const;
  void grow();

  Mutex mutex_;
  std::vector<Object*> slots_;  // open addressing
  size_t used_ = 0;             // including tombstones
};

}  // namespace simgpu
