// The driver API alone, linked directly: two contexts that are pushed and popped, modules loaded
// from PTX text and unloaded again while others stay, their globals and functions, a library with
// kernels that belong to no context.
#include <cuda.h>

#include "subject.h"

constexpr int kCount = 512;
constexpr int kContexts = 2;

// state[i] = state[i] * 1664525 + salt + i, and the module's own counter goes up by one.
const char kPtx[] = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 counter = 40;
.visible .const .align 4 .u32 salt = 5;

.visible .entry advance(.param .u64 state, .param .u32 count)
{
  .reg .pred %p<3>;
  .reg .b32 %r<10>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [state];
  ld.param.u32 %r1, [count];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra DONE;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.u32 %rd3, %r5, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.u32 %r6, [%rd4];
  ld.const.u32 %r7, [salt];
  add.u32 %r7, %r7, %r5;
  mad.lo.s32 %r6, %r6, 1664525, %r7;
  st.global.u32 [%rd4], %r6;
  setp.ne.u32 %p2, %r5, 0;
  @%p2 bra DONE;
  ld.global.u32 %r8, [counter];
  add.u32 %r8, %r8, 1;
  st.global.u32 [counter], %r8;
DONE:
  ret;
}
)";

struct Side {
  CUcontext context;
  CUstream stream;
  CUevent event;
  CUmodule module;
  CUfunction advance;
  CUdeviceptr state, counter, salt;
  std::vector<uint32_t> expected;
  uint32_t expected_counter, expected_salt;

  void loadModule() {
    CHECK(cuModuleLoadData(&module, kPtx));
    CHECK(cuModuleGetFunction(&advance, module, "advance"));
    size_t bytes;
    CHECK(cuModuleGetGlobal(&counter, &bytes, module, "counter"));
    EXPECT(bytes == sizeof(uint32_t));
    CHECK(cuModuleGetGlobal(&salt, &bytes, module, "salt"));
    expected_counter = 40;
    expected_salt = 5;
  }

  void launch(CUfunction function, uint32_t used_salt) {
    int count = kCount;
    void* arguments[] = {&state, &count};
    CHECK(cuLaunchKernel(function, kCount / 128, 1, 1, 128, 1, 1, 0, stream, arguments, nullptr));
    for (int i = 0; i < kCount; ++i) expected[i] = expected[i] * 1664525u + used_salt + i;
  }
};

int main(int argc, char** argv) {
  Steps steps(argc, argv);
  CHECK(cuInit(0));
  CUdevice device;
  CHECK(cuDeviceGet(&device, 0));
  Side sides[kContexts];
  for (int s = 0; s < kContexts; ++s) {
    Side& side = sides[s];
    CHECK(cuCtxCreate(&side.context, nullptr, 0, device));
    CHECK(cuStreamCreate(&side.stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&side.event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&side.state, kCount * sizeof(uint32_t)));
    CHECK(cuMemsetD32(side.state, s, kCount));
    CHECK(cuCtxSynchronize());  // the stream that goes on with it does not wait for the default one
    side.expected.assign(kCount, s);
    side.loadModule();
    CUcontext popped;
    CHECK(cuCtxPopCurrent(&popped));
    EXPECT(popped == side.context);
  }
  CUlibrary library;
  CUkernel kernel;
  CHECK(cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CHECK(cuLibraryGetKernel(&kernel, library, "advance"));

  Digest digest;
  std::vector<uint32_t> actual(kCount);
  for (int step = 1; step <= steps.count(); ++step) {
    for (int s = 0; s < kContexts; ++s) {
      Side& side = sides[s];
      CHECK(cuCtxPushCurrent(side.context));
      if (step % 4 == s) {
        CHECK(cuStreamSynchronize(side.stream));
        CHECK(cuModuleUnload(side.module));
        side.loadModule();
      }
      side.expected_salt = mix(step + s);
      CHECK(cuMemcpyHtoDAsync(side.salt, &side.expected_salt, sizeof(uint32_t), side.stream));
      side.launch(side.advance, side.expected_salt);
      ++side.expected_counter;
      CHECK(cuEventRecord(side.event, side.stream));
      side.launch(reinterpret_cast<CUfunction>(kernel), 5);  // the library's own salt
      CHECK(cuEventSynchronize(side.event));
      CHECK(cuMemcpyDtoHAsync(actual.data(), side.state, kCount * sizeof(uint32_t), side.stream));
      CHECK(cuStreamSynchronize(side.stream));
      EXPECT(actual == side.expected);
      uint32_t counter;
      CHECK(cuMemcpyDtoH(&counter, side.counter, sizeof(counter)));
      EXPECT(counter == side.expected_counter);
      digest.add(actual);
      digest.add(counter);
      CUcontext popped;
      CHECK(cuCtxPopCurrent(&popped));
    }
    steps.report(step, digest);
  }
  CHECK(cuLibraryUnload(library));
  for (Side& side : sides) {
    CHECK(cuCtxPushCurrent(side.context));
    CHECK(cuModuleUnload(side.module));
    CHECK(cuMemFree(side.state));
    CHECK(cuEventDestroy(side.event));
    CHECK(cuStreamDestroy(side.stream));
    CHECK(cuCtxDestroy(side.context));
  }
  return steps.finish(digest);
}
