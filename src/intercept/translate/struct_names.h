// Structures that hold handles: copied, and the copy's handles translated, when names are in use.
// External memory and semaphores are never alive across a restore (Refuse), so their handles are
// their own names and the structures that hold nothing else pass unchanged.
//
// Owner: the copies are the caller's, for one call. Threads: any. Errors: none.
#pragma once

#include <initializer_list>

#include "base/heap.h"
#include "intercept/translate/translate.h"

namespace gpuckpt {

template <class H>
inline H in_if(bool names, Kind kind, H handle) {
  return __builtin_expect(names, 0) ? handle_from<H>(now_of(kind, handle_bits(handle))) : handle;
}
template <class H>
inline void out_at(Kind kind, H* at) {
  if (at) *at = handle_from<H>(name_of(kind, handle_bits(*at)));
}
template <class H>
inline void created_at(Kind kind, H* at) {
  if (at) *at = handle_from<H>(name_new(kind, handle_bits(*at)));
}
template <class H>
inline void handles_out(Kind kind, H* at, size_t count) {
  if (at)
    for (size_t i = 0; i < count; i++) out_at(kind, at + i);
}

// An array of handles going in.
template <class H>
class HandlesIn {
  using Plain = std::remove_const_t<H>;

 public:
  HandlesIn(bool names, Kind kind, H* from, size_t count) : given_(from) {
    if (__builtin_expect(!names, 1) || !from) return;
    Plain* to = few_;
    if (count > kFew) {
      many_ = scratch_map(count * sizeof(H));
      if (!many_) return;  // the driver finds handles that it does not know
      to = reinterpret_cast<Plain*>(many_.data());
    }
    for (size_t i = 0; i < count; i++)
      to[i] = handle_from<Plain>(now_of(kind, handle_bits(from[i])));
    given_ = to;
  }
  ~HandlesIn() {
    if (__builtin_expect(static_cast<bool>(many_), 0)) scratch_unmap(&many_);
  }
  HandlesIn(const HandlesIn&) = delete;
  HandlesIn& operator=(const HandlesIn&) = delete;
  H* get() { return given_; }

 private:
  static constexpr size_t kFew = 256;
  H* given_;
  Region many_;
  Plain few_[kFew];
};

// What to translate in each type, both ways: `t(kind, field)`.
template <class S, class T>
inline void each_handle(S&, T&&) {}  // holds no handle that a restore changes
template <class T>
inline void each_handle(CUDA_KERNEL_NODE_PARAMS_v1& s, T&& t) {
  t(Kind::kFunction, s.func);
}
template <class T>
inline void each_handle(CUDA_KERNEL_NODE_PARAMS_v2& s, T&& t) {
  t(Kind::kFunction, s.func);
  t(Kind::kKernel, s.kern);
  t(Kind::kContext, s.ctx);
}
// Copies: only an end that is an array has a handle.
template <class S, class T>
inline void each_array(S& s, T&& t) {
  if (s.srcMemoryType == CU_MEMORYTYPE_ARRAY) t(Kind::kArray, s.srcArray);
  if (s.dstMemoryType == CU_MEMORYTYPE_ARRAY) t(Kind::kArray, s.dstArray);
}
template <class T>
inline void each_handle(CUDA_MEMCPY2D& s, T&& t) {
  each_array(s, t);
}
template <class T>
inline void each_handle(CUDA_MEMCPY3D& s, T&& t) {
  each_array(s, t);
}
template <class T>
inline void each_handle(CUDA_MEMCPY3D_PEER& s, T&& t) {
  t(Kind::kContext, s.srcContext);
  t(Kind::kContext, s.dstContext);
  each_array(s, t);
}
template <class T>
inline void each_handle(CUDA_MEMCPY3D_BATCH_OP& s, T&& t) {
  for (CUmemcpy3DOperand* end : {&s.src, &s.dst})
    if (end->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) t(Kind::kArray, end->op.array.array);
}
template <class T>
inline void each_handle(CUDA_RESOURCE_DESC& s, T&& t) {
  if (s.resType == CU_RESOURCE_TYPE_ARRAY) t(Kind::kArray, s.res.array.hArray);
  if (s.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
    t(Kind::kMipmappedArray, s.res.mipmap.hMipmappedArray);
}
template <class T>
inline void each_handle(CUDA_BATCH_MEM_OP_NODE_PARAMS_v1& s, T&& t) {
  t(Kind::kContext, s.ctx);
}
template <class T>
inline void each_handle(CUDA_GRAPH_INSTANTIATE_PARAMS& s, T&& t) {
  t(Kind::kStream, s.hUploadStream);
  t(Kind::kGraphNode, s.hErrNode_out);
}
template <class T>
inline void each_handle(CUDA_LAUNCH_PARAMS& s, T&& t) {
  t(Kind::kFunction, s.function);
  t(Kind::kStream, s.hStream);
}
template <class T>
inline void each_handle(CUgraphNodeParams& s, T&& t) {
  switch (s.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      t(Kind::kFunction, s.kernel.func);
      t(Kind::kKernel, s.kernel.kern);
      t(Kind::kContext, s.kernel.ctx);
      break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      t(Kind::kContext, s.memcpy.copyCtx);
      each_array(s.memcpy.copyParams, t);
      break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      t(Kind::kContext, s.memset.ctx);
      break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      t(Kind::kGraph, s.graph.graph);
      break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      t(Kind::kEvent, s.eventWait.event);
      break;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      t(Kind::kEvent, s.eventRecord.event);
      break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      t(Kind::kContext, s.memOp.ctx);
      break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      t(Kind::kContext, s.conditional.ctx);
      break;
    default:
      break;
  }
}
// Sparse arrays do not live across a restore, but memory does that is mapped to one after it.
template <class T>
inline void each_handle(CUarrayMapInfo& s, T&& t) {
  if (s.memHandleType == CU_MEM_HANDLE_TYPE_GENERIC) t(Kind::kMemHandle, s.memHandle.memHandle);
}
// One launch attribute: only events in it are handles.
template <class T>
inline void each_handle(CUlaunchAttribute& s, T&& t) {
  if (s.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
    t(Kind::kEvent, s.value.programmaticEvent.event);
  if (s.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
    t(Kind::kEvent, s.value.launchCompletionEvent.event);
  }
}

struct ToNow {
  template <class H>
  void operator()(Kind kind, H& handle) const {
    handle = handle_from<H>(now_of(kind, handle_bits(handle)));
  }
};
struct ToName {
  template <class H>
  void operator()(Kind kind, H& handle) const {
    handle = handle_from<H>(name_of(kind, handle_bits(handle)));
  }
};

// A structure going in. A const one is copied; one the driver also writes is changed in place and
// changed back.
template <class S>
class StructIn {
 public:
  StructIn(bool names, S* from) : given_(from) {
    if (__builtin_expect(!names, 1) || !from) return;
    if constexpr (std::is_const_v<S>) {
      copy_ = *from;
      each_handle(copy_, ToNow());
      given_ = &copy_;
    } else {
      changed_ = true;
      each_handle(*from, ToNow());
    }
  }
  ~StructIn() {
    if constexpr (!std::is_const_v<S>) {
      if (changed_) each_handle(*given_, ToName());
    }
  }
  StructIn(const StructIn&) = delete;
  StructIn& operator=(const StructIn&) = delete;
  S* get() { return given_; }

 private:
  S* given_;
  bool changed_ = false;
  union {
    std::remove_const_t<S> copy_;
    char none_;
  };
};

// A list of structures going in: changed in place and changed back.
template <class S>
class StructsIn {
 public:
  StructsIn(bool names, S* from, size_t count)
      : given_(from), changed_(__builtin_expect(names, 0) && from ? count : 0) {
    for (size_t i = 0; i < changed_; i++) each_handle(given_[i], ToNow());
  }
  ~StructsIn() {
    for (size_t i = 0; i < changed_; i++) each_handle(given_[i], ToName());
  }
  StructsIn(const StructsIn&) = delete;
  StructsIn& operator=(const StructsIn&) = delete;
  S* get() { return given_; }

 private:
  S* given_;
  size_t changed_;
};

// A launch configuration has a list of attributes behind it.
template <>
class StructIn<const CUlaunchConfig> {
 public:
  StructIn(bool names, const CUlaunchConfig* from) : given_(from) {
    if (__builtin_expect(!names, 1) || !from) return;
    copy_ = *from;
    copy_.hStream = handle_from<CUstream>(now_of(Kind::kStream, handle_bits(copy_.hStream)));
    if (copy_.attrs && copy_.numAttrs <= kRoom) {
      for (unsigned i = 0; i < copy_.numAttrs; i++) {
        attributes_[i] = copy_.attrs[i];
        each_handle(attributes_[i], ToNow());
      }
      copy_.attrs = attributes_;
    }
    given_ = &copy_;
  }
  const CUlaunchConfig* get() { return given_; }

 private:
  static constexpr unsigned kRoom = 32;
  const CUlaunchConfig* given_;
  CUlaunchConfig copy_;
  CUlaunchAttribute attributes_[kRoom];
};

template <class S>
inline void struct_out(S* s) {
  if (s) each_handle(*s, ToName());
}

}  // namespace gpuckpt
