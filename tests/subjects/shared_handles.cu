// The application's own virtual memory: a segment whose pages come and go (as frameworks expand
// theirs), and a page that is mapped nowhere most of the time, in turn by the handle it was created
// with, by one that was imported once, and by a fresh import from its descriptor.
#include <cuda.h>
#include <unistd.h>

#include "subject.h"

constexpr int kPages = 16;
constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
size_t page_bytes;
CUmemAllocationProp properties = {};

CUmemGenericAllocationHandle create() {
  CUmemGenericAllocationHandle handle;
  CHECK(cuMemCreate(&handle, page_bytes, &properties, 0));
  return handle;
}
CUmemGenericAllocationHandle import(int descriptor) {
  CUmemGenericAllocationHandle handle;
  CHECK(cuMemImportFromShareableHandle(
      &handle, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)), kDescriptor));
  return handle;
}
void map(CUdeviceptr at, CUmemGenericAllocationHandle handle) {
  CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CHECK(cuMemMap(at, page_bytes, 0, handle, 0));
  CHECK(cuMemSetAccess(at, page_bytes, &access, 1));
}
void fill(CUdeviceptr page, uint32_t value) {
  CHECK(cuMemsetD32(page, value, page_bytes / sizeof(uint32_t)));
  CHECK(cuCtxSynchronize());
}
uint32_t lastWord(CUdeviceptr page) {
  uint32_t word;
  CHECK(cuMemcpyDtoH(&word, page + page_bytes - sizeof(word), sizeof(word)));
  return word;
}

struct Segment {
  CUdeviceptr base;
  CUmemGenericAllocationHandle pages[kPages] = {};
  uint32_t values[kPages] = {};

  // A page that was there goes, and one that was not comes.
  void toggle(int i, uint32_t value, Digest* digest) {
    const CUdeviceptr page = base + i * page_bytes;
    if (pages[i]) {
      EXPECT(lastWord(page) == values[i]);
      digest->add(values[i]);
      CHECK(cuMemUnmap(page, page_bytes));
      CHECK(cuMemRelease(pages[i]));
      pages[i] = 0;
      return;
    }
    pages[i] = create();
    map(page, pages[i]);
    fill(page, values[i] = value);
  }
};

int main(int argc, char** argv) {
  Steps steps(argc, argv);
  CHECK(cuInit(0));
  CUcontext context;
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = 0;
  properties.requestedHandleTypes = kDescriptor;
  CHECK(cuMemGetAllocationGranularity(&page_bytes, &properties,
                                      CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  Segment segment;
  CUdeviceptr window;
  CHECK(cuMemAddressReserve(&segment.base, kPages * page_bytes, 0, 0, 0));
  CHECK(cuMemAddressReserve(&window, page_bytes, 0, 0, 0));

  const CUmemGenericAllocationHandle created = create();
  int descriptor;
  CHECK(cuMemExportToShareableHandle(&descriptor, created, kDescriptor, 0));
  const CUmemGenericAllocationHandle imported = import(descriptor);
  map(window, created);
  fill(window, 0);
  CHECK(cuMemUnmap(window, page_bytes));

  Digest digest;
  for (int step = 1; step <= steps.count(); ++step) {
    segment.toggle(mix(step) % kPages, step, &digest);
    const CUmemGenericAllocationHandle fresh = import(descriptor);
    const CUmemGenericAllocationHandle turn[] = {created, imported, fresh};
    map(window, turn[step % 3]);
    const uint32_t value = lastWord(window);
    EXPECT(value == (step == 1 ? 0 : mix(step - 1)));
    digest.add(value);
    fill(window, mix(step));
    CHECK(cuMemUnmap(window, page_bytes));
    CHECK(cuMemRelease(fresh));
    steps.report(step, digest);
  }
  CHECK(cuMemRelease(imported));
  CHECK(cuMemRelease(created));
  EXPECT(close(descriptor) == 0);
  return steps.finish(digest);
}
