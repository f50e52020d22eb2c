// The rarer objects over several generations, in one test process: each is made, captured, replayed
// in a forked child whose driver is rewound, looked at, used, changed, and so on.
//   object_test [one_file]: descriptors of memory as NVIDIA's driver gives them
#include <fcntl.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "device/modules/image.h"
#include "device/tests/life.h"
#include "intercept/generated/real_driver.h"
#include "intercept/realm/realm.h"

namespace {

const char kPtx[] = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 both[4] = {1, 2, 3, 4};
.visible .global .align 4 .u32 counter = 5;
.visible .entry add(.param .u64 p, .param .u32 n) {
  .reg .u32 %r<4>; .reg .u64 %d<2>;
  ld.param.u64 %d1, [p]; ld.param.u32 %r1, [n];
  mov.u32 %r3, %ntid.x;
  ld.global.u32 %r2, [%d1]; add.u32 %r2, %r2, %r1; add.u32 %r2, %r2, %r3; st.global.u32 [%d1], %r2;
  ld.global.u32 %r2, [both+4]; add.u32 %r2, %r2, 1; st.global.u32 [both+4], %r2;
  ret;
}
)";
const char kCaller[] = R"(
.version 8.0
.target sm_75
.address_size 64
.extern .func (.param .b32 r) twice(.param .b32 x);
.visible .global .align 4 .u32 calls = 0;
.visible .entry call(.param .u64 p) {
  .reg .u32 %r<3>; .reg .u64 %d<2>;
  ld.param.u64 %d1, [p];
  ld.global.u32 %r1, [calls]; add.u32 %r1, %r1, 1; st.global.u32 [calls], %r1;
  { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), twice, (a); ld.param.b32 %r2, [b]; }
  st.global.u32 [%d1], %r2; ret;
}
)";
const char kCallee[] = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .func (.param .b32 r) twice(.param .b32 x) {
  .reg .u32 %r<3>;
  ld.param.b32 %r1, [x]; add.u32 %r2, %r1, %r1; st.param.b32 [r], %r2; ret;
}
)";

const char kTalker[] = R"(
.version 8.0
.target sm_75
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 text[6] = {115, 97, 105, 100, 10, 0};
.visible .entry say() {
  .reg .u64 %d<3>;
  mov.u64 %d1, text; cvta.global.u64 %d1, %d1; mov.u64 %d2, 0;
  { .param .b64 a; .param .b64 b; .param .b32 c; st.param.b64 [a], %d1; st.param.b64 [b], %d2;
    call (c), vprintf, (a, b); }
  ret;
}
)";
const char kHeap[] = R"(
.version 8.0
.target sm_75
.address_size 64
.extern .func (.param .b64 r) malloc(.param .b64 bytes);
.visible .entry idle() { ret; }
.visible .entry take() {
  .reg .u64 %d<2>;
  mov.u64 %d1, 64;
  { .param .b64 a; .param .b64 b; st.param.b64 [a], %d1; call (b), malloc, (a); }
  ret;
}
)";

CUcontext context;
CUmodule module;
CUfunction add;
CUdeviceptr memory;

uint32_t word(CUdeviceptr at) {
  uint32_t v;
  OK(cuMemcpyDtoH_v2(&v, at, 4));
  return v;
}

// A fat binary of one PTX entry, and a wrapper of several to be linked, as -rdc=true makes them.
std::vector<uint8_t> container(const char* text) {
  size_t padded = (strlen(text) + 8) / 8 * 8;
  std::vector<uint8_t> out(16 + 80 + padded);
  auto put = [&](size_t at, auto value) { memcpy(out.data() + at, &value, sizeof value); };
  put(0, gpuckpt::device::kContainerMagic);
  put(4, uint16_t{1});
  put(6, uint16_t{16});
  put(8, uint64_t{out.size() - 16});
  put(16, uint16_t{1});
  put(20, uint32_t{80});
  put(24, uint64_t{padded});
  put(44, uint32_t{75});
  memcpy(out.data() + 96, text, strlen(text));
  return out;
}

struct Linked {
  CUmodule module;
  CUfunction call;
  uint32_t calls = 0;
  void load() {
    auto caller = container(kCaller), callee = container(kCallee), none = container("");
    put_nothing(&none);
    const void* parts[] = {caller.data(), callee.data(), nullptr};
    gpuckpt::device::FatbinWrapper wrapper{gpuckpt::device::kWrapperMagic,
                                           gpuckpt::device::kLinkedWrapper, none.data(), parts};
    OK(cuModuleLoadData(&module, &wrapper));
    OK(cuModuleGetFunction(&call, module, "call"));
  }
  static void put_nothing(std::vector<uint8_t>* c) {
    c->resize(16);
    memset(c->data() + 8, 0, 8);
  }
  void check() {
    void* arguments[] = {&memory};
    OK(cuLaunchKernel(call, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
    CHECK(word(memory) == 2 * ++calls);
  }
} linked;

struct Managed {
  uint32_t* host;
  uint32_t first = 1, second = 2;
  void make() {
    CUdeviceptr at;
    size_t size;
    OK(cuModuleGetGlobal_v2(&at, &size, module, "both"));
    CHECK(size == 16);
    host = reinterpret_cast<uint32_t*>(at);
  }
  void check() {
    CHECK(host[0] == first && host[1] == second && host[3] == 4);
    host[0] = ++first;
    host[1] = second += 10;
  }
} managed;

struct Streams {
  CUstream a, b;
  unsigned long long window = 1 << 16;
  CUstreamAttrValue get(CUstream s, CUstreamAttrID id) {
    CUstreamAttrValue v = {};
    OK(cuStreamGetAttribute(s, id, &v));
    return v;
  }
  void make() {
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, 0));
    set(a);
    OK(cuStreamCopyAttributes(b, a));
    CUstreamAttrValue v = {};
    v.syncPolicy = CU_SYNC_POLICY_YIELD;
    OK(cuStreamSetAttribute(nullptr, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v));
  }
  void set(CUstream s) {
    CUstreamAttrValue v = {};
    v.accessPolicyWindow.base_ptr = reinterpret_cast<void*>(memory);
    v.accessPolicyWindow.num_bytes = window;
    v.accessPolicyWindow.hitRatio = 0.5f;
    OK(cuStreamSetAttribute(s, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
  }
  void check() {
    for (CUstream s : {a, b}) {
      auto v = get(s, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW).accessPolicyWindow;
      CHECK(v.base_ptr == reinterpret_cast<void*>(memory) && v.num_bytes == window);
    }
    CHECK(get(nullptr, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY).syncPolicy ==
          CU_SYNC_POLICY_YIELD);
    window += 4096;
    set(a);
    set(b);
  }
} streams;

// The first driver API: a context with several uses, flags changed later, arrays, pinned memory,
// launches whose parameters are kept in the function.
struct FirstApi {
  CUcontext old;
  CUarray array;
  uint32_t* pinned;
  uint32_t sum = 0;
  void make() {
    OK(cuCtxCreate(&old, CU_CTX_SCHED_YIELD, 0));
    CUcontext same;
    OK(cuCtxAttach(&same, 0));
    CHECK(same == old);
    OK(cuCtxSetFlags(CU_CTX_SCHED_BLOCKING_SYNC));
    CUcontext popped;
    OK(cuCtxPopCurrent_v2(&popped));
    CUDA_ARRAY_DESCRIPTOR_v1 shape = {4, 2, CU_AD_FORMAT_UNSIGNED_INT32, 1};
    OK(cuArrayCreate(&array, &shape));
    void* p;
    OK(cuMemAllocHost(&p, 256));
    pinned = static_cast<uint32_t*>(p);
    pinned[9] = 9;
    OK(cuMemsetD32_v2(memory + 64, 0, 1));
    OK(cuFuncSetBlockShape(add, 7, 1, 1));
    OK(cuFuncSetSharedSize(add, 16));
    CUdeviceptr at = memory + 64;
    OK(cuParamSetv(add, 0, &at, sizeof at));
    OK(cuParamSeti(add, 8, 100));
    OK(cuParamSetSize(add, 12));
    unsigned bytes = 0;
    OK(cuModuleGetGlobal(nullptr, &bytes, module, "counter"));
    CHECK(bytes == 4);
  }
  void check() {
    OK(cuLaunch(add));
    ++managed.second;
    OK(cuCtxSynchronize());
    CHECK(word(memory + 64) == (sum += 107));
    OK(cuCtxPushCurrent_v2(old));
    unsigned flags = 0;
    OK(cuCtxGetFlags(&flags));
    CHECK((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC);
    CUcontext popped;
    OK(cuCtxPopCurrent_v2(&popped));
    CHECK(popped == old);
    CUDA_ARRAY_DESCRIPTOR_v1 shape;
    OK(cuArrayGetDescriptor(&shape, array));
    CHECK(shape.Width == 4 && shape.Height == 2 && pinned[9] == 9);
  }
  void end() {
    OK(cuCtxPushCurrent_v2(old));
    OK(cuCtxDetach(old));  // one use less
    CUcontext now;
    OK(cuCtxGetCurrent(&now));
    CHECK(now == old);
    OK(cuCtxDetach(old));
    OK(cuCtxGetCurrent(&now));
    CHECK(now == context);
    CHECK(cuCtxPushCurrent_v2(old) == CUDA_ERROR_INVALID_CONTEXT);
  }
} first;

struct Sessions {
  CUlinkState open, done;
  void* cubin;
  size_t size;
  static void feed(CUlinkState s, const char* text) {
    OK(cuLinkAddData_v2(s, CU_JIT_INPUT_PTX, const_cast<char*>(text), strlen(text) + 1, "a text", 0,
                        nullptr, nullptr));
  }
  void make() {
    OK(cuLinkCreate_v2(0, nullptr, nullptr, &open));
    feed(open, kCaller);
    OK(cuLinkCreate_v2(0, nullptr, nullptr, &done));
    feed(done, kCaller);
    feed(done, kCallee);
    OK(cuLinkComplete(done, &cubin, &size));
    CHECK(!gpuckpt::realm_heap_contains(cubin));  // which does not outlive a restore
    char log[256] = "";
    CUjit_option keys[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
    CUlinkState reporting;
    OK(cuLinkCreate_v2(2, keys, values, &reporting));
    refused(gpuckpt::kExitTimeout, "linker session");
    OK(cuLinkDestroy(reporting));
  }
  static void use(const void* image) {
    CUmodule m;
    CUfunction f;
    OK(cuModuleLoadData(&m, image));
    OK(cuModuleGetFunction(&f, m, "call"));
    CUdeviceptr at = memory + 128;
    void* arguments[] = {&at};
    OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
    CHECK(word(at) == 2);
    OK(cuModuleUnload(m));
  }
  void check() { use(cubin); }
  void end() {
    feed(open, kCallee);
    OK(cuLinkComplete(open, &cubin, &size));
    use(cubin);
    OK(cuLinkDestroy(open));
    OK(cuLinkDestroy(done));
    CHECK(cuLinkDestroy(open) == CUDA_ERROR_INVALID_HANDLE);
  }
} sessions;

struct Listeners {
  CUasyncCallbackHandle notification;
  CUlogsCallbackHandle log;
  std::string heard;
  static void notified(CUasyncNotificationInfo*, void*, CUasyncCallbackHandle) {}
  static void logged(void* data, CUlogLevel, char* line, size_t length) {
    static_cast<Listeners*>(data)->heard.assign(line, length);
  }
  void make() {
    OK(cuDeviceRegisterAsyncNotification(0, notified, this, &notification));
    OK(cuLogsRegisterCallback(logged, this, &log));
  }
  void check() {
    heard.clear();
    CHECK(cuMulticastUnbind(0, 0, 0, 0) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(heard.find("cuMulticastUnbind") != std::string::npos);
  }
  void end() {
    OK(cuDeviceUnregisterAsyncNotification(0, notification));
    CHECK(cuDeviceUnregisterAsyncNotification(0, notification) != CUDA_SUCCESS);
    OK(cuLogsUnregisterCallback(log));
    CHECK(cuLogsUnregisterCallback(log) != CUDA_SUCCESS);
  }
} listeners;

// Memory with more references than one, and a device's pool set by its location.
struct Memory {
  CUmemGenericAllocationHandle one, two;
  CUdeviceptr range;
  CUmemoryPool pool;
  size_t size = 2 << 20;
  void make() {
    CUmemAllocationProp p = {};
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    OK(cuMemCreate(&one, size, &p, 0));
    OK(cuMemAddressReserve(&range, size, 0, 0, 0));
    OK(cuMemMap(range, size, 0, one, 0));
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, {0}},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemSetAccess(range, size, &access, 1));
    OK(cuMemRetainAllocationHandle(&two, reinterpret_cast<void*>(range)));
    OK(cuMemsetD32_v2(range, 77, 4));
    CUmemPoolProps props = {};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    OK(cuMemPoolCreate(&pool, &props));
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    OK(cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, pool));
  }
  void check() {
    CHECK(word(range + 12) == 77);
    CUmemoryPool now;
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    OK(cuMemGetMemPool(&now, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
    CHECK(now == pool);
    CUmemAllocationProp p;
    OK(cuMemGetAllocationPropertiesFromHandle(&p, two));
  }
  void end() {
    OK(cuMemRelease(one));
    OK(cuMemRelease(two));
    CHECK(cuMemRelease(two) != CUDA_SUCCESS);
    CHECK(word(range) == 77);  // still mapped
    OK(cuMemUnmap(range, size));
  }
} vmm;

// As NVIDIA's driver has it: all its descriptors are of one file (/dev/nvidiactl; /dev/zero here),
// and only the open file tells what one stands for (by its signal, here).
namespace one_file {

decltype(gpuckpt::RealDriver::cuMemExportToShareableHandle) give;
decltype(gpuckpt::RealDriver::cuMemImportFromShareableHandle) take;
int behind[65], given;

CUresult give_ours(void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                   unsigned long long flags) {
  const int which = 1 + given++ % 64;
  int fd;
  if (CUresult result = give(&fd, handle, type, flags); result != CUDA_SUCCESS) return result;
  close(behind[which]);
  behind[which] = fcntl(fd, F_DUPFD_CLOEXEC, 800);
  close(fd);
  fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
  CHECK(fcntl(fd, F_SETSIG, which) == 0);
  *static_cast<int*>(out) = fd;
  return CUDA_SUCCESS;
}
CUresult take_ours(CUmemGenericAllocationHandle* handle, void* fd, CUmemAllocationHandleType type) {
  const int which = fcntl(static_cast<int>(reinterpret_cast<intptr_t>(fd)), F_GETSIG);
  CHECK(which > 0);
  return take(handle, reinterpret_cast<void*>(intptr_t{behind[which]}), type);
}
void install() {
  auto& driver = const_cast<gpuckpt::RealDriver&>(gpuckpt::real());
  memset(behind, -1, sizeof behind);
  give = driver.cuMemExportToShareableHandle;
  take = driver.cuMemImportFromShareableHandle;
  driver.cuMemExportToShareableHandle = give_ours;
  driver.cuMemImportFromShareableHandle = take_ours;
}

}  // namespace one_file

// Memory with a descriptor (kept open, twice) and a handle that came back by it; memory whose
// descriptor had the number of another one's before; memory that is mapped nowhere, or not all of
// it, or only as long as another mapping.
struct Shared {
  static constexpr size_t kPage = 2 << 20;
  static constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle exported, imported, unmapped, half, sibling, sibling_too;
  CUdeviceptr first, second, third, fourth;
  int fd, copy;
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  uint32_t value = 1;
  size_t free = 0;

  void map(CUdeviceptr at, size_t size, CUmemGenericAllocationHandle handle) {
    OK(cuMemMap(at, size, 0, handle, 0));
    OK(cuMemSetAccess(at, size, &access, 1));
  }
  void make() {
    CUmemAllocationProp p = {};
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    OK(cuMemAddressReserve(&first, 4 * kPage, 0, 0, 0));
    OK(cuMemAddressReserve(&second, kPage, 0, 0, 0));
    OK(cuMemAddressReserve(&third, 2 * kPage, 0, 0, 0));
    refused_for_sparse_arrays(p);
    OK(cuMemCreate(&unmapped, 2 * kPage, &p, 0));
    OK(cuMemCreate(&half, 2 * kPage, &p, 0));
    p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    OK(cuMemCreate(&exported, kPage, &p, 0));
    OK(cuMemExportToShareableHandle(&fd, exported, p.requestedHandleTypes, 0));
    use_number_again(p);
    copy = fcntl(fd, F_DUPFD, 100);
    OK(cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(intptr_t{copy}),
                                      p.requestedHandleTypes));
    map(second, kPage, imported);
    map(third, 2 * kPage, half);
    OK(cuMemsetD32_v2(third, 1000, 2 * kPage / 4));
    OK(cuCtxSynchronize());
    OK(cuMemUnmap(third, 2 * kPage));
    map(third, kPage, half);
    change();
  }
  void refused_for_sparse_arrays(CUmemAllocationProp p) {
    CUmemGenericAllocationHandle tiles;
    p.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
    OK(cuMemCreate(&tiles, kPage, &p, 0));
    CHECK(cuMemMap(second, kPage, 0, tiles, 0) == CUDA_ERROR_INVALID_VALUE);
    refused(gpuckpt::kExitRefused, "sparse arrays");
    OK(cuMemRelease(tiles));
  }
  void use_number_again(const CUmemAllocationProp& p) {
    int before, after;
    OK(cuMemAddressReserve(&fourth, kPage, 0, 0, 0));
    OK(cuMemCreate(&sibling, kPage, &p, 0));
    OK(cuMemExportToShareableHandle(&before, exported, kDescriptor, 0));
    close(before);
    OK(cuMemExportToShareableHandle(&after, sibling, kDescriptor, 0));
    CHECK(before == after);
    OK(cuMemImportFromShareableHandle(&sibling_too, reinterpret_cast<void*>(intptr_t{after}),
                                      kDescriptor));
    close(after);
    map(fourth, kPage, sibling_too);
    OK(cuMemsetD32_v2(fourth, 5000, kPage / 4));
    CUmemGenericAllocationHandle same;
    OK(cuMemRetainAllocationHandle(&same, reinterpret_cast<void*>(fourth)));
    CHECK(same == sibling_too);
  }
  void change() {
    ++value;
    OK(cuMemsetD32_v2(second, value, kPage / 4));
    map(first, 2 * kPage, unmapped);
    OK(cuMemsetD32_v2(first, value + 100, kPage / 4));
    OK(cuMemsetD32_v2(first + kPage, value + 200, kPage / 4));
    OK(cuCtxSynchronize());
    OK(cuMemUnmap(first, 2 * kPage));
    size_t total;
    OK(cuMemGetInfo_v2(&free, &total));
  }
  void check() {
    size_t now, total;
    OK(cuMemGetInfo_v2(&now, &total));
    CHECK(now == free || !gpuckpt::generation());
    map(first + 2 * kPage, kPage, exported);  // the same memory
    CHECK(word(first + 2 * kPage + 8) == value);
    OK(cuMemsetD32_v2(first + 2 * kPage, ++value, kPage / 4));
    OK(cuCtxSynchronize());
    CHECK(word(second + kPage - 4) == value);
    OK(cuMemUnmap(first + 2 * kPage, kPage));
    for (int number : {fd, copy}) {
      CUmemGenericAllocationHandle again;
      OK(cuMemImportFromShareableHandle(&again, reinterpret_cast<void*>(intptr_t{number}),
                                        kDescriptor));
      map(first + 3 * kPage, kPage, again);
      CHECK(word(first + 3 * kPage) == value);
      OK(cuMemUnmap(first + 3 * kPage, kPage));
      OK(cuMemRelease(again));
    }
    map(first + 3 * kPage, kPage, sibling);
    CHECK(word(first + 3 * kPage + 4) == 5000 && word(fourth + kPage - 4) == 5000);
    OK(cuMemUnmap(first + 3 * kPage, kPage));
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC && fcntl(copy, F_GETFD) == 0);
    map(first, 2 * kPage, unmapped);
    CHECK(word(first) == value + 99 && word(first + 2 * kPage - 4) == value + 199);
    OK(cuMemUnmap(first, 2 * kPage));
    CHECK(word(third) == 1000);
    map(first, 2 * kPage, half);
    CHECK(word(first + 2 * kPage - 4) == 1000);
    OK(cuMemUnmap(first, 2 * kPage));
    change();
  }
  void end() {
    OK(cuMemRelease(exported));
    CHECK(cuMemRelease(exported) != CUDA_SUCCESS);
    CHECK(word(second) == value);
    OK(cuMemRelease(imported));
    OK(cuMemUnmap(second, kPage));
    next_generation();  // only descriptors hold it
    OK(cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(intptr_t{copy}),
                                      kDescriptor));
    map(second, kPage, imported);
    CHECK(word(second) == value);
    OK(cuMemRelease(imported));
    OK(cuMemUnmap(second, kPage));
    OK(cuMemRelease(sibling_too));
    OK(cuMemRelease(sibling_too));  // retained once
    CHECK(cuMemRelease(sibling_too) != CUDA_SUCCESS);
    OK(cuMemRelease(sibling));
    CHECK(word(fourth) == 5000);
    OK(cuMemUnmap(fourth, kPage));
    close(fd);
    close(copy);
    OK(cuMemUnmap(third, kPage));
    OK(cuMemRelease(half));
    OK(cuMemRelease(unmapped));
  }
} shared;

// Handles in lists of structures, and more of them than are translated in place.
struct Lists {
  CUarray one, two;
  CUstream stream;
  CUdeviceptr memory;
  CUgraph graph;
  std::vector<CUgraphNode> nodes;
  uint32_t value = 0;

  static CUmemcpy3DOperand at(CUarray array) {
    CUmemcpy3DOperand o = {};
    o.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    o.op.array.array = array;
    return o;
  }
  static CUmemcpy3DOperand at(CUdeviceptr memory) {
    CUmemcpy3DOperand o = {};
    o.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    o.op.ptr.ptr = memory;
    return o;
  }
  void make() {
    CUDA_ARRAY3D_DESCRIPTOR shape = {8, 2, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, 0};
    OK(cuArray3DCreate_v2(&one, &shape));
    OK(cuArray3DCreate_v2(&two, &shape));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&memory, 4096));
    OK(cuGraphCreate(&graph, 0));
    for (int i = 0; i < 300; ++i) OK(cuGraphAddEmptyNode(&nodes.emplace_back(), graph, nullptr, 0));
  }
  void check() {
    constexpr auto kOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    CUDA_MEMCPY3D_BATCH_OP ops[] = {
        {at(memory), at(one), {8, 2, 1}, kOrder, 0},
        {at(one), at(two), {8, 2, 1}, kOrder, 0},
        {at(two), at(memory + 2048), {8, 2, 1}, kOrder, 0},
    };
    OK(cuMemsetD32Async(memory, ++value, 16, stream));
    OK(cuMemcpy3DBatchAsync_v2(3, ops, 0, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(word(memory + 2048 + 60) == value);
    CHECK(ops[1].src.op.array.array == one && ops[2].src.op.array.array == two);
    CUgraphNode last;
    size_t count;
    OK(cuGraphAddEmptyNode(&last, graph, nodes.data(), nodes.size()));
    OK(cuGraphNodeGetDependencies(last, nullptr, &count));
    CHECK(count == nodes.size());
  }
} lists;

// Held by the program, by a graph, by a clone and by an executable whose graph is gone.
struct Users {
  CUuserObject shared, moved;
  CUgraph graph;
  CUgraphExec exec;
  int ended = 0, moved_ended = 0;
  static void end_one(void* p) { ++*static_cast<int*>(p); }
  void make() {
    OK(cuUserObjectCreate(&shared, &ended, end_one, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuUserObjectRetain(shared, 2));
    OK(cuUserObjectRelease(shared, 1));  // two
    OK(cuUserObjectCreate(&moved, &moved_ended, end_one, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    CUgraph first_graph;
    CUgraphNode node;
    OK(cuGraphCreate(&first_graph, 0));
    OK(cuGraphAddEmptyNode(&node, first_graph, nullptr, 0));
    OK(cuGraphRetainUserObject(first_graph, shared, 1, 0));
    OK(cuGraphRetainUserObject(first_graph, moved, 1, CU_GRAPH_USER_OBJECT_MOVE));
    OK(cuGraphInstantiateWithFlags(&exec, first_graph, 0));
    OK(cuGraphClone(&graph, first_graph));
    OK(cuGraphDestroy(first_graph));
  }
  void check() {
    CHECK(ended == 0 && moved_ended == 0);
    OK(cuGraphLaunch(exec, nullptr));
    OK(cuCtxSynchronize());
  }
  void end() {
    OK(cuUserObjectRelease(shared, 2));
    CHECK(ended == 0);
    OK(cuGraphDestroy(graph));
    CHECK(ended == 0 && moved_ended == 0);
    OK(cuGraphExecDestroy(exec));
    CHECK(ended == 1 && moved_ended == 1);
    CHECK(cuUserObjectRetain(shared, 1) != CUDA_SUCCESS);
  }
} users;

// What kernels print before a snapshot is printed once, by the process that is left behind.
struct Talker {
  CUfunction say;
  int out, standard;
  void make() {
    CUmodule talker;
    OK(cuModuleLoadData(&talker, kTalker));
    OK(cuModuleGetFunction(&say, talker, "say"));
    fflush(stdout);
    standard = dup(1);
    out = memfd_create("printed", 0);
  }
  long printed() {
    fflush(stdout);
    return lseek(out, 0, SEEK_END);
  }
  void check() {
    CHECK(dup2(out, 1) == 1);
    const long before = printed();
    OK(cuLaunchKernel(say, 1, 1, 1, 2, 1, 1, 0, nullptr, nullptr, nullptr));
    next_generation();
    CHECK(printed() == before + 10);
    OK(cuCtxSynchronize());
    CHECK(printed() == before + 10);
    OK(cuLaunchKernel(say, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    OK(cuCtxSynchronize());
    CHECK(printed() == before + 15);
    // The thread that has standard output locked may wait at the gate.
    OK(cuLaunchKernel(say, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    while (cuStreamQuery(nullptr) == CUDA_ERROR_NOT_READY) usleep(1000);
    flockfile(stdout);
    refused(gpuckpt::kExitTimeout, "standard output");
    funlockfile(stdout);
    OK(cuCtxSynchronize());
    CHECK(dup2(standard, 1) == 1);
  }
} talker;

// Allocations share a mapping: what leaves one is an error all the same, and touches nothing.
void overruns_are_errors() {
  CUdeviceptr small, next, large;
  OK(cuMemAlloc_v2(&small, 1000));
  OK(cuMemAlloc_v2(&next, 1000));
  OK(cuMemAlloc_v2(&large, 3 << 20));
  OK(cuMemsetD8_v2(next, 7, 1000));
  std::vector<uint8_t> host(4 << 20);
  const CUresult bad = CUDA_ERROR_INVALID_VALUE;
  OK(cuMemsetD32_v2(small, 1, 250));
  CHECK(cuMemsetD32_v2(small, 1, 300) == bad);
  CHECK(cuMemsetD8Async(small + 900, 1, 400, nullptr) == bad);
  CHECK(cuMemsetD2D8_v2(small, 512, 1, 100, 3) == bad);
  OK(cuMemsetD2D8_v2(small, 512, 1, 100, 2));
  CHECK(cuMemcpyHtoD_v2(small, host.data(), 2000) == bad);
  CHECK(cuMemcpyDtoHAsync_v2(host.data(), large, host.size(), nullptr) == bad);
  OK(cuMemcpyDtoH_v2(host.data(), large, 3 << 20));
  CHECK(cuMemcpyDtoD_v2(large, small, 2000) == bad);
  CHECK(cuMemcpyDtoD_v2(small, large, 2000) == bad);
  CHECK(cuMemcpy(small, reinterpret_cast<CUdeviceptr>(host.data()), 2000) == bad);
  CUDA_MEMCPY2D rows = {};
  rows.srcMemoryType = CU_MEMORYTYPE_HOST;
  rows.srcHost = host.data();
  rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.dstDevice = small;
  rows.dstPitch = 100;
  rows.WidthInBytes = 50;
  rows.Height = 10;
  OK(cuMemcpy2D_v2(&rows));
  rows.Height = 11;
  CHECK(cuMemcpy2D_v2(&rows) == bad);
  CHECK(cuMemcpy2D_v2(nullptr) == bad);
  uint8_t kept[1000];
  OK(cuMemcpyDtoH_v2(kept, next, sizeof kept));
  for (uint8_t byte : kept) CHECK(byte == 7);
  for (CUdeviceptr p : {small, next, large}) OK(cuMemFree_v2(p));
}

// Memory that only a descriptor holds lives until the last duplicate is closed, and no longer; also
// when that happens between the freeze and the stop.
void held_by_descriptors() {
  CUmemAllocationProp p = {};
  p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle;
  size_t before, now, total;
  OK(cuMemGetInfo_v2(&before, &total));
  auto expect_held = [&](bool held) {
    OK(cuMemGetInfo_v2(&now, &total));
    CHECK(now == before - (held ? 2 << 20 : 0));
  };
  const gpuckpt::DevicePlugin* plugin = gpuckpt::device_plugin;
  for (const bool stopped : {false, true}) {
    int fd;
    OK(cuMemCreate(&handle, 2 << 20, &p, 0));
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    const int copy = dup(fd);
    OK(cuMemRelease(handle));
    CHECK(cuMemRelease(handle) != CUDA_SUCCESS);
    close(fd);
    expect_held(true);
    gpuckpt::DeviceReport report = {};
    bool frozen = false;
    if (stopped)
      std::thread([&] { frozen = plugin->freeze(500, now_ms() + 5000, &report); }).join();
    CHECK(frozen == stopped);
    close(copy);
    if (stopped) plugin->resume();
    expect_held(false);
  }
}

// Memory of cuMemCreate that lies with the host: one piece that both sides use, one that only the
// device may touch, and one that is mapped nowhere.
void memory_of_the_host() {
  constexpr size_t kPage = 2 << 20;
  CUmemAllocationProp p = {};
  p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.location.type = CU_MEM_LOCATION_TYPE_HOST;
  CUmemGenericAllocationHandle both, device_only, nowhere;
  CUdeviceptr range;
  CUmemAccessDesc device = {}, host = {};
  device.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  host.location.type = CU_MEM_LOCATION_TYPE_HOST;
  device.flags = host.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  OK(cuMemAddressReserve(&range, 3 * kPage, 0, 0, 0));
  OK(cuMemCreate(&both, kPage, &p, 0));
  OK(cuMemCreate(&nowhere, kPage, &p, 0));
  p.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  OK(cuMemCreate(&device_only, kPage, &p, 0));
  OK(cuMemMap(range, kPage, 0, both, 0));
  OK(cuMemMap(range + kPage, kPage, 0, device_only, 0));
  OK(cuMemMap(range + 2 * kPage, kPage, 0, nowhere, 0));
  OK(cuMemSetAccess(range, 3 * kPage, &device, 1));
  OK(cuMemSetAccess(range, kPage, &host, 1));
  OK(cuMemsetD32_v2(range, 1, 3 * kPage / 4));
  OK(cuMemsetD32_v2(range + 2 * kPage, 33, 4));
  OK(cuCtxSynchronize());
  OK(cuMemUnmap(range + 2 * kPage, kPage));
  auto* words = reinterpret_cast<volatile uint32_t*>(range);
  CHECK(words[5] == 1);
  for (uint32_t turn = 0; turn < 3; ++turn) {
    words[turn] = 100 + turn;
    OK(cuMemsetD32_v2(range + kPage + turn * 4, 200 + turn, 1));
    OK(cuCtxSynchronize());
    next_generation();
    for (uint32_t i = 0; i <= turn; ++i) {
      CHECK(words[i] == 100 + i && word(range + i * 4) == 100 + i);
      CHECK(word(range + kPage + i * 4) == 200 + i);
    }
    CHECK(words[kPage / 4 - 1] == 1 && word(range + 2 * kPage - 4) == 1);
    words[1000] = turn;
    CHECK(word(range + 4000) == turn);
    OK(cuMemMap(range + 2 * kPage, kPage, 0, nowhere, 0));
    OK(cuMemSetAccess(range + 2 * kPage, kPage, &device, 1));
    CHECK(word(range + 2 * kPage + 12) == 33 && word(range + 3 * kPage - 4) == 1);
    OK(cuMemUnmap(range + 2 * kPage, kPage));
  }
  OK(cuMemUnmap(range, 2 * kPage));
  for (CUmemGenericAllocationHandle h : {both, device_only, nowhere}) OK(cuMemRelease(h));
  OK(cuMemAddressFree(range, 3 * kPage));
}

// Memory of every kind that copies are to be synchronous with stays so.
void synchronous_memory() {
  CUdeviceptr plain, neighbour;
  void* pinned;
  const int on = 1, off = 0;
  auto is = [](CUdeviceptr at) {
    int value = -1;
    OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at));
    return value;
  };
  OK(cuMemAlloc_v2(&plain, 1000));
  OK(cuMemAlloc_v2(&neighbour, 1000));
  OK(cuMemHostAlloc(&pinned, 4096, 0));
  const auto host = reinterpret_cast<CUdeviceptr>(pinned);
  OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, plain));
  OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, host));
  next_generation();
  CHECK(is(plain) == 1 && is(neighbour) == 0 && is(plain + 900) == 1);
  int drivers = 0;
  OK(gpuckpt::real().cuPointerGetAttribute(&drivers, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, plain));
  CHECK(drivers == 1);
  OK(gpuckpt::real().cuPointerGetAttribute(&drivers, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, host));
  CHECK(drivers == 1);
  OK(cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, plain));
  next_generation();
  CHECK(is(plain) == 0);
  OK(cuMemFree_v2(plain));
  OK(cuMemFree_v2(neighbour));
  OK(cuMemFreeHost(pinned));
}

// Memory that is offered to others, and that no process has opened, comes back offered; when it is
// freed nothing is left of that. (With others: tests/trees.)
void offered_memory() {
  CUipcMemHandle handle, again;
  CUipcEventHandle shared;
  CUdeviceptr small, large;
  CUevent event;
  for (int generation = 0; generation < 2; ++generation) {
    OK(cuMemAlloc_v2(&small, 5000));
    OK(cuMemAlloc_v2(&large, 5 << 20));
    OK(cuIpcGetMemHandle(&handle, large));
    OK(cuIpcGetMemHandle(&again, large + 7));
    CHECK(!memcmp(&handle, &again, sizeof handle));
    OK(cuIpcGetMemHandle(&again, small));
    int capable = 0;
    OK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, small));
    CHECK(capable == 1);
    OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    OK(cuIpcGetEventHandle(&shared, event));
    next_generation();
    OK(cuIpcGetMemHandle(&again, large));
    OK(cuEventRecord(event, nullptr));
    OK(cuEventSynchronize(event));
    OK(cuMemFree_v2(large));
    next_generation();
    OK(cuMemFree_v2(small));
    OK(cuEventDestroy_v2(event));
    next_generation();
  }
}

// A kernel that may call malloc was taken from its module: what it left on the heap belongs to no
// kernel.
void heap_is_refused() {
  CUmodule heap;
  CUfunction function;
  OK(cuModuleLoadData(&heap, kHeap));
  OK(cuModuleGetFunction(&function, heap, "idle"));
  next_generation();
  OK(cuModuleGetFunction(&function, heap, "take"));
  refused(gpuckpt::kExitRefused, "the kernel take");
  OK(cuModuleUnload(heap));
  refused(gpuckpt::kExitRefused, "the kernel take");
  set("GPUCKPT_DEVICE_HEAP", "empty");
  next_generation();
}

}  // namespace

int main(int count, char**) {
  alarm(100);
  OK(cuInit(0));
  if (count > 1) one_file::install();
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  OK(cuModuleLoadData(&module, kPtx));
  OK(cuModuleGetFunction(&add, module, "add"));
  OK(cuMemAlloc_v2(&memory, 4096));
  OK(cuMemsetD8_v2(memory, 0, 4096));
  linked.load();
  managed.make();
  streams.make();
  first.make();
  sessions.make();
  listeners.make();
  vmm.make();
  shared.make();
  lists.make();
  users.make();
  OK(cuCheckpointProcessLock(getpid(), nullptr));
  refused(gpuckpt::kExitRefused, "cuCheckpointProcessLock");
  OK(cuCheckpointProcessUnlock(getpid(), nullptr));
  auto check = [] {
    linked.check();
    managed.check();
    streams.check();
    first.check();
    sessions.check();
    listeners.check();
    vmm.check();
    shared.check();
    lists.check();
    users.check();
  };
  check();
  for (unsigned generation = 1; generation <= 3; ++generation) {
    next_generation();
    CHECK(gpuckpt::generation() == generation);
    check();
  }
  first.end();
  sessions.end();
  listeners.end();
  vmm.end();
  shared.end();
  users.end();
  next_generation();  // what has ended stays so
  CHECK(users.ended == 1);
  CHECK(cuLinkDestroy(sessions.done) != CUDA_SUCCESS);
  overruns_are_errors();
  memory_of_the_host();
  synchronous_memory();
  held_by_descriptors();
  offered_memory();
  talker.make();
  talker.check();
  heap_is_refused();
  fprintf(stderr, "generation %u PASS\n", gpuckpt::generation());
  _exit(0);
}
