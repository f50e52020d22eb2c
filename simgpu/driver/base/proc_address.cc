// cuGetProcAddress, and the private tables that we do not have.
#include <stdlib.h>
#include <string.h>

#include "driver/base/own_table.h"
#include "driver/base/state.h"
#include "driver/generated/proc_table.h"

namespace simgpu {
namespace {

// The newest variant whose version is at most `version`; per-thread ones when asked and there.
const ProcRow* find(const char* name, int version, bool per_thread, bool* known) {
  *known = false;
  const ProcRow *plain = nullptr, *own = nullptr;
  bool has_own = false;
  size_t low = 0, high = kProcRows;
  while (low < high) {  // the first row of that name
    size_t middle = (low + high) / 2;
    if (strcmp(proc_rows[middle].name, name) < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  for (; low < kProcRows && strcmp(proc_rows[low].name, name) == 0; ++low) {
    const ProcRow& row = proc_rows[low];
    *known = true;
    has_own = has_own || row.per_thread;
    if (row.version > version) continue;
    const ProcRow*& best = row.per_thread ? own : plain;
    if (!best || row.version >= best->version) best = &row;
  }
  // A version older than the per-thread variants has none.
  return per_thread && has_own ? own : plain;
}

CUresult get(const char* name, void** out, int version, cuuint64_t flags,
             CUdriverProcAddressQueryResult* status, bool first_version) {
  if (!name || !out) return CUDA_ERROR_INVALID_VALUE;
  constexpr cuuint64_t kKnown =
      CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if ((flags & ~kKnown) != 0 || flags == kKnown) return CUDA_ERROR_INVALID_VALUE;
  bool known;
  const ProcRow* row =
      find(name, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0, &known);
  if (row) {
    *out = reinterpret_cast<void*>(row->function);
    if (status) *status = CU_GET_PROC_ADDRESS_SUCCESS;
    return CUDA_SUCCESS;
  }
  if (first_version) return CUDA_ERROR_NOT_FOUND;
  *out = nullptr;
  if (status)
    *status =
        known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

// The first eight bytes of the tables NVIDIA's runtime asks a driver for; see refusal below.
constexpr uint8_t kRuntimeTables[][8] = {
    {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a},
    {0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74},
    {0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47},
    {0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11},
};

}  // namespace
}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuGetProcAddress_v2(const char* name, void** out, int version, cuuint64_t flags,
                               CUdriverProcAddressQueryResult* status) {
  SIMGPU_ENTER_WITH("cuGetProcAddress_v2", kNothing);
  return get(name, out, version, flags, status, false);
}

SIMGPU_API cuGetProcAddress(const char* name, void** out, int version, cuuint64_t flags) {
  SIMGPU_ENTER_WITH("cuGetProcAddress", kNothing);
  return get(name, out, version, flags, nullptr, true);
}

// NVIDIA's runtime authenticates its driver by such tables. The simulated driver neither has nor
// imitates them: the runtime fails, and the message names what works instead.
SIMGPU_API cuGetExportTable(const void** table, const CUuuid* id) {
  SIMGPU_ENTER_WITH("cuGetExportTable", kNothing);
  if (!table || !id) return CUDA_ERROR_INVALID_VALUE;
  *table = own_table(*id);
  if (*table) return CUDA_SUCCESS;
  static std::atomic<bool> told{false};
  for (const auto& known : kRuntimeTables) {
    if (memcmp(id->bytes, known, sizeof known) != 0 || told.exchange(true)) continue;
    // Under `gpuckpt run --sim` a runtime that is loaded as a shared library would be ours.
    if (getenv("GPUCKPT_SIM")) {
      say("a library that has NVIDIA's CUDA runtime linked into it (cuBLAS, cuDNN, CuPy, Warp) "
          "does not run on the simulated GPU; Triton, numba-cuda, cuda.core, tinygrad and programs "
          "built with nvcc -cudart=shared do, and PyTorch's operators with `gpuckpt run "
          "--sim=torch`");
    } else {
      say("NVIDIA's own CUDA runtime does not run on the simulated GPU: build the program with "
          "nvcc -cudart=shared and start it with `gpuckpt run --sim`, which brings a runtime that "
          "does");
    }
  }
  return CUDA_ERROR_NOT_FOUND;
}
