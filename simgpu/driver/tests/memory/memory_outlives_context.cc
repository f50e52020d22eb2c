// Memory of cuMemCreate belongs to no context: its bytes, mapping and access stay when the context
// goes that was current when it was made.
#include "check.h"

int main() {
  OK(cuInit(0));
  CUcontext first, second;
  OK(cuCtxCreate(&first, nullptr, 0, 0));
  CUmemAllocationProp where = {};
  where.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  where.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  size_t bytes;
  OK(cuMemGetAllocationGranularity(&bytes, &where, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  size_t before, total, after;
  OK(cuMemGetInfo(&before, &total));
  CUmemGenericAllocationHandle memory;
  CUdeviceptr address;
  OK(cuMemCreate(&memory, bytes, &where, 0));
  OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
  OK(cuMemMap(address, bytes, 0, memory, 0));
  CUmemAccessDesc access = {where.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  OK(cuMemSetAccess(address, bytes, &access, 1));
  OK(cuMemsetD32(address, 0x12345678, bytes / 4));
  OK(cuCtxDestroy(first));

  OK(cuCtxCreate(&second, nullptr, 0, 0));
  uint32_t got = 0;
  OK(cuMemcpyDtoH(&got, address + bytes - 4, 4));
  CHECK(got == 0x12345678);
  CUfunction add = function(load(PTX_HEAD R"(
.visible .entry add(.param .u64 at) {
  .reg .b32 %r; .reg .b64 %d;
  ld.param.u64 %d, [at]; ld.global.u32 %r, [%d]; add.u32 %r, %r, 1; st.global.u32 [%d], %r; ret;
})"),
                            "add");
  OK(launch1(add, 1, 1, nullptr, address));
  OK(cuMemcpyDtoH(&got, address, 4));
  CHECK(got == 0x12345679);
  OK(cuMemUnmap(address, bytes));
  OK(cuMemRelease(memory));
  OK(cuMemAddressFree(address, bytes));
  OK(cuMemGetInfo(&after, &total));
  CHECK(after == before);
  OK(cuCtxDestroy(second));
  return ok();
}
