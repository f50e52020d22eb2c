// A program on several devices over several generations, restored onto the same devices in another
// order (--gpu-map): every device's memory, streams, variables, pool and peers come back under the
// program's own number, on the GPU that was asked for. What cannot be is refused, by name.
//   devices_test
#include <string>

#include "device/tests/life.h"

namespace {

const char kPtx[] = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 counter = 0;
.visible .entry sum(.param .u64 to, .param .u64 from) {
  .reg .u32 %r<4>; .reg .u64 %d<3>;
  ld.param.u64 %d1, [to]; ld.param.u64 %d2, [from];
  ld.global.u32 %r1, [%d1]; ld.global.u32 %r2, [%d2]; add.u32 %r1, %r1, %r2; st.global.u32 [%d1], %r1;
  ld.global.u32 %r3, [counter]; add.u32 %r3, %r3, 1; st.global.u32 [counter], %r3;
  ret;
}
)";

struct Device {
  CUcontext context;
  CUstream stream;
  CUmodule module;
  CUfunction sum;
  CUdeviceptr memory, pooled, counter;
  uint32_t expect, calls = 0;
};
std::vector<Device> all;

std::string uuid_of(int device) {
  CUuuid uuid;
  OK(cuDeviceGetUuid_v2(&uuid, device));
  std::string text = "GPU-";
  char byte[4];
  for (int i = 0; i < 16; ++i) {
    snprintf(byte, sizeof byte, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += i == 4 || i == 6 || i == 8 || i == 10 ? std::string("-") + byte : byte;
  }
  return text;
}

void make(int count) {
  all.resize(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    Device& d = all[static_cast<size_t>(i)];
    d.expect = 1000u * static_cast<uint32_t>(i + 1);
    OK(cuDevicePrimaryCtxRetain(&d.context, i));
    OK(cuCtxSetCurrent(d.context));
    OK(cuStreamCreate(&d.stream, CU_STREAM_NON_BLOCKING));
    OK(cuModuleLoadData(&d.module, kPtx));
    OK(cuModuleGetFunction(&d.sum, d.module, "sum"));
    OK(cuModuleGetGlobal_v2(&d.counter, nullptr, d.module, "counter"));
    OK(cuMemAlloc_v2(&d.memory, 1 << 20));
    OK(cuMemsetD32_v2(d.memory, d.expect, (1 << 20) / 4));
    OK(cuMemAllocAsync(&d.pooled, 4096, d.stream));
    OK(cuMemsetD32Async(d.pooled, static_cast<uint32_t>(i), 1024, d.stream));
    OK(cuStreamSynchronize(d.stream));
  }
  for (Device& d : all) {  // every device may read every other
    OK(cuCtxSetCurrent(d.context));
    for (Device& other : all)
      if (&other != &d) OK(cuCtxEnablePeerAccess(other.context, 0));
  }
}

// Each device adds what its neighbour has.
void check() {
  for (size_t i = 0; i < all.size(); ++i) {
    Device &d = all[i], &next = all[(i + 1) % all.size()];
    OK(cuCtxSetCurrent(d.context));
    CUdevice here;
    OK(cuCtxGetDevice(&here));
    CHECK(here == static_cast<int>(i));
    void* arguments[] = {&d.memory, &next.memory};
    OK(cuLaunchKernel(d.sum, 1, 1, 1, 1, 1, 1, 0, d.stream, arguments, nullptr));
    OK(cuStreamSynchronize(d.stream));
    d.expect += next.expect;
    ++d.calls;
    uint32_t value, last, calls, pooled;
    OK(cuMemcpyDtoH_v2(&value, d.memory, 4));
    OK(cuMemcpyDtoH_v2(&last, d.memory + (1 << 20) - 4, 4));
    OK(cuMemcpyDtoH_v2(&calls, d.counter, 4));
    OK(cuMemcpyDtoH_v2(&pooled, d.pooled + 4092, 4));
    CHECK(value == d.expect && last == 1000 * (i + 1) && calls == d.calls && pooled == i);
    int of = -1;
    OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, d.memory));
    CHECK(of == static_cast<int>(i));
  }
}

}  // namespace

int main() {
  alarm(100);
  int count = 0;
  OK(cuInit(0));
  OK(cuDeviceGetCount(&count));
  CHECK(count >= 2);
  make(count);
  check();
  std::vector<std::string> uuids;
  for (int i = 0; i < count; ++i) uuids.push_back(uuid_of(i));

  gpu_map = "0=99";
  next_generation("no such device");
  gpu_map = "0=1";
  next_generation("two devices of the program would be one");
  gpu_map = "50=0";
  next_generation("the program has no such device");
  check();

  const int last = count - 1;
  std::string swap = "0=" + std::to_string(last) + "," + std::to_string(last) + "=0";
  gpu_map = swap.c_str();
  next_generation();
  check();
  CHECK(uuid_of(0) == uuids[static_cast<size_t>(last)]);
  CHECK(uuid_of(last) == uuids[0]);

  gpu_map = nullptr;  // where it was
  next_generation();
  check();
  CHECK(uuid_of(0) == uuids[static_cast<size_t>(last)]);

  std::string back =
      uuid_of(0) + "=" + uuids[0] + "," + uuid_of(last) + "=" + uuids[static_cast<size_t>(last)];
  gpu_map = back.c_str();
  next_generation();
  check();
  for (int i = 0; i < count; ++i) CHECK(uuid_of(i) == uuids[static_cast<size_t>(i)]);

  // The GPU in the place of the first one is too small.
  setenv("SIMGPU_LAST_MEMORY", "512M", 1);
  gpu_map = swap.c_str();
  next_generation("bytes of memory");
  fprintf(stderr, "generation %u PASS\n", gpuckpt::generation());
  _exit(0);
}
