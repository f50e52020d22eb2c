// Contexts, and which of them is current to each thread.
#pragma once

#include <vector>

#include "driver/base/heap.h"
#include "driver/base/object.h"
#include "driver/context/device.h"
#include "driver/module/module_space.h"

namespace simgpu {

class Module;
class Stream;
struct Capture;

// What a context's kernels can reach.
class ContextMemory : public ptx::Memory {
 public:
  explicit ContextMemory(const Context& c) : context_(c) {}
  bool find(uint64_t address, ptx::Segment* out) override;
  // Device memory of the size CU_LIMIT_MALLOC_HEAP_SIZE, allocated at its first use.
  bool heap(uint64_t* address, uint64_t* bytes) override;
  void forget_heap() { heap_ = heap_bytes_ = 0; }

 private:
  const Context& context_;
  Mutex heap_mutex_;
  uint64_t heap_ = 0, heap_bytes_ = 0;
};

class Context : public Object {
 public:
  static constexpr Kind kKind = Kind::kContext;
  Context(Device*, unsigned flags, bool primary);
  ~Context() override;
  static void* operator new(size_t);  // blocks of a size nothing else in the driver has
  static void operator delete(void*);

  // A context that is not active has no state (a primary one may become active again under the same
  // handle).
  CUresult activate();
  void deactivate();  // cancels what runs, waits for the streams' threads, frees everything
  bool active() const { return active_.load(std::memory_order_acquire); }

  // The error every later call gets, or CUDA_SUCCESS.
  CUresult error() const { return error_.load(std::memory_order_acquire); }
  void fail(CUresult, const char* why);

  CUresult synchronize();
  void flush_output();

  CUcontext handle() { return reinterpret_cast<CUcontext>(this); }
  bool reaches(const Mapping&, bool write) const;

  Device* const device;
  const bool primary;
  unsigned flags;
  uint64_t id = 0;  // fresh at each activation
  ContextMemory memory{*this};
  std::atomic<bool> cancel{false};
  std::atomic<int> uses{1};        // cuCtxAttach, cuCtxDetach
  std::atomic<uint32_t> peers{0};  // devices whose memory this context may touch

  // Order in which work of the context is submitted; guards the stream list.
  Mutex order;
  std::vector<Stream*> streams;  // all with a handle, per-thread ones and the legacy one
  Ref<Stream> legacy;

  Mutex mutex;  // the rest
  std::vector<Ref<Module>> modules;
  ModuleSpace module_space{0, kLibraries};
  DeviceHeap heap;
  uint64_t module_base = 0;
  uint64_t limits[8] = {};
  CUfunc_cache cache_config = CU_FUNC_CACHE_PREFER_NONE;
  CUsharedconfig shared_config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;

  // What kernels print, and which assertions failed in them.
  Mutex output_mutex;
  std::vector<char> output, errors;

  // Threads of streams that are alive.
  Mutex workers_mutex;
  Cond workers_gone;
  int workers = 0;

 private:
  std::atomic<bool> active_{false};
  std::atomic<CUresult> error_{CUDA_SUCCESS};
  uint64_t overhead_ = 0;
};

struct ThreadState {
  struct Entry {
    Context* context;  // not a reference: compared with the table before use
    uint64_t id;
    CUcontext green = nullptr;  // the handle of a green context in it
    CUcontext handle() const { return green ? green : context->handle(); }
  };
  struct Own {
    uint64_t context;
    Ref<Stream> stream;
  };
  std::vector<Entry> stack;
  std::vector<Own> streams;  // per-thread default streams
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  int per_thread = 0;        // inside a _ptsz/_ptds entry point
  bool in_callback = false;  // a host function is running
  size_t stack_bytes = 0;    // of the thread; 0: not asked for yet
  // The dependencies that cuStreamGetCaptureInfo returned to the thread last.
  std::vector<CUgraphNode> asked_nodes;
  std::vector<CUgraphEdgeData> asked_edges;
};
ThreadState* thread();           // makes it
ThreadState* thread_if_known();  // may be null
void make_thread_key();          // the constructor's

// While it lives, a NULL stream means the per-thread one.
class PerThreadDefault {
 public:
  PerThreadDefault() { ++thread()->per_thread; }
  ~PerThreadDefault() { --thread()->per_thread; }
};

// The calling thread's context: CUDA_ERROR_INVALID_CONTEXT when there is none,
// CUDA_ERROR_CONTEXT_IS_DESTROYED, or its sticky error.
CUresult current(Ref<Context>*, bool tolerate_error = false);
Ref<Context> context_of(CUcontext);  // a green context's: the one it is in
CUresult retain_primary(Device&, Ref<Context>*);
CUresult release_primary(Device&);

#define CURRENT(ctx) \
  Ref<Context> ctx;  \
  if (CUresult simgpu_c = current(&ctx); simgpu_c != CUDA_SUCCESS) return simgpu_c

}  // namespace simgpu
