// Threads that make and end things at the same time, so that the driver gives one the value that
// another had a moment ago: contexts with memory and functions, graphs, user objects, mipmaps. What
// was kept of them is used in every step.
#include <cuda.h>

#include <thread>

#include "subject.h"

namespace {

constexpr int kThreads = 4, kKept = 5;

const char kPtx[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry go(.param .u64 p) {\n"
    "  .reg .b32 %r<2>; .reg .b64 %d<2>;\n"
    "  ld.param.u64 %d1, [p]; cvta.to.global.u64 %d1, %d1;\n"
    "  ld.global.u32 %r1, [%d1]; mad.lo.s32 %r1, %r1, 5, 1; st.global.u32 [%d1], %r1; ret;\n}\n";

// A context with something in it.
struct Place {
  CUcontext context = nullptr;
  CUfunction function;
  CUdeviceptr memory;

  void make(uint32_t value) {
    CUmodule module;
    CHECK(cuCtxCreate(&context, nullptr, 0, 0));
    CHECK(cuModuleLoadData(&module, kPtx));
    CHECK(cuModuleGetFunction(&function, module, "go"));
    CHECK(cuMemAlloc(&memory, 4096));
    CHECK(cuMemsetD32(memory, value, 1024));
  }
  uint32_t use() {
    uint32_t value;
    CUcontext same;
    void* arguments[] = {&memory};
    CHECK(cuCtxPushCurrent(context));
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
    CHECK(cuMemcpyDtoH(&value, memory, 4));
    CHECK(cuCtxPopCurrent(&same));
    return value;
  }
};

void ended(void*) {}

struct Worker {
  CUcontext context;  // of what is no context
  uint32_t random;
  CUgraph graph[kKept] = {};
  CUuserObject user[kKept] = {};
  CUmipmappedArray mipmap[kKept] = {};

  uint32_t next() { return random = mix(random + 1); }

  // Makes what is not there, and ends what is.
  void turn() {
    const uint32_t r = next();
    const size_t i = r / 8 % kKept;
    if (r % 8 < 5) {
      CHECK(graph[i] ? cuGraphDestroy(graph[i]) : cuGraphCreate(&graph[i], 0));
      made_or_ended(&graph[i], &had_graph[i]);
    } else if (r % 8 < 7) {
      CHECK(user[i]
                ? cuUserObjectRelease(user[i], 1)
                : cuUserObjectCreate(&user[i], this, ended, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
      made_or_ended(&user[i], &had_user[i]);
    } else {
      CUDA_ARRAY3D_DESCRIPTOR d = {32, 32, 0, CU_AD_FORMAT_FLOAT, 1, 0};
      CHECK(mipmap[i] ? cuMipmappedArrayDestroy(mipmap[i])
                      : cuMipmappedArrayCreate(&mipmap[i], &d, 2));
      made_or_ended(&mipmap[i], &had_mipmap[i]);
    }
  }
  template <typename T>
  static void made_or_ended(T* thing, bool* had) {
    if (*had) *thing = nullptr;
    *had = !*had;
  }
  bool had_graph[kKept] = {}, had_user[kKept] = {}, had_mipmap[kKept] = {};

  void step(int number, uint32_t* sum) {
    CHECK(cuCtxSetCurrent(context));
    for (int i = 0; i < 1500; ++i) turn();
    // Memory of a context that has just begun is its own.
    for (int i = 0; i < 2; ++i) {
      Place brief;
      brief.make(static_cast<uint32_t>(number + i));
      CUcontext same;
      CHECK(cuCtxPopCurrent(&same));
      *sum += brief.use();
      CHECK(cuCtxDestroy(brief.context));
    }
  }

  void add_to(Digest* digest) {
    for (CUgraph g : graph) {
      size_t nodes = 7;
      if (g) CHECK(cuGraphGetNodes(g, nullptr, &nodes));
      digest->add(nodes);
    }
    for (CUuserObject u : user) {
      if (u) CHECK(cuUserObjectRetain(u, 1));
      if (u) CHECK(cuUserObjectRelease(u, 1));
      digest->add(u != nullptr);
    }
    for (CUmipmappedArray m : mipmap) {
      CUarray level;
      if (m) CHECK(cuMipmappedArrayGetLevel(&level, m, 1));
      digest->add(m != nullptr);
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  Steps steps(argc, argv);
  CHECK(cuInit(0));
  Worker worker[kThreads];
  Place kept[kThreads];
  CUcontext primary, same;
  CHECK(cuDevicePrimaryCtxRetain(&primary, 0));
  for (int t = 0; t < kThreads; ++t) {
    worker[t].context = primary;
    worker[t].random = mix(static_cast<uint32_t>(t + 1));
    kept[t].make(static_cast<uint32_t>(t));
    CHECK(cuCtxPopCurrent(&same));
  }
  CHECK(cuCtxSetCurrent(primary));
  Digest digest;
  for (int step = 1; step <= steps.count(); ++step) {
    uint32_t sums[kThreads] = {};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] { worker[t].step(step, &sums[t]); });
    for (std::thread& thread : threads) thread.join();
    for (int t = 0; t < kThreads; ++t) {
      worker[t].add_to(&digest);
      digest.add(sums[t] + kept[t].use());
    }
    steps.report(step, digest);
  }
  return steps.finish(digest);
}
