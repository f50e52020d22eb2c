// Advice about managed memory. Ours lies in host memory, so that advice and prefetches change
// nothing but the answers.
#include "device/arena/managed.h"
#include "device/hooks/hooks.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt {
namespace device {
namespace {

template <typename F>
bool managed(CUdeviceptr address, size_t bytes, F use) {
  return with_managed(address, bytes, &use,
                      [](void* context, Advice* advice) { (*static_cast<F*>(context))(advice); });
}

int place_of(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : CU_DEVICE_CPU;
}

bool device_exists(int device) {
  int count = 0;
  return device == CU_DEVICE_CPU ||
         (device >= 0 && real().cuDeviceGetCount(&count) == CUDA_SUCCESS && device < count);
}

// Returns false if the memory is not ours; otherwise `result` is the answer.
bool advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, int device, CUresult* result) {
  bool names_device = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
                      advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                      advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
  bool exists = !names_device || device_exists(device);
  *result = exists ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  return managed(address, bytes, [&](Advice* a) {
    if (!exists) return;
    uint32_t bit = 1u << (device >= 0 && device < 31 ? device : 31);
    switch (static_cast<int>(advice)) {
      case CU_MEM_ADVISE_SET_READ_MOSTLY:
      case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        a->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        break;
      case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        a->preferred = device;
        break;
      case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        a->preferred = CU_DEVICE_INVALID;
        break;
      case CU_MEM_ADVISE_SET_ACCESSED_BY:
        a->accessed_by |= bit;
        break;
      case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        a->accessed_by &= ~bit;
        break;
      default:
        *result = CUDA_ERROR_INVALID_VALUE;
    }
  });
}

bool prefetch(CUdeviceptr address, size_t bytes, int device, CUstream stream, CUresult* result) {
  if (!managed(address, bytes, [](Advice*) {})) return false;
  unsigned flags;
  *result =
      !device_exists(device) ? CUDA_ERROR_INVALID_DEVICE : real().cuStreamGetFlags(stream, &flags);
  if (*result == CUDA_SUCCESS)
    managed(address, bytes, [&](Advice* a) { a->last_prefetch = device; });
  return true;
}

bool any_is_ours(const CUdeviceptr* addresses, const size_t* sizes, size_t count) {
  for (size_t i = 0; addresses && sizes && i < count; ++i)
    if (managed(addresses[i], sizes[i], [](Advice*) {})) return true;
  return false;
}

// The calls for many ranges. Some are ours: those here, one by one, the others by `native`, a call
// for one range. The driver's own checks are ours to make, before anything is done.
struct Ranges {
  CUdeviceptr* addresses;
  size_t* sizes;
  size_t count;
  CUmemLocation* places;  // null: a discard without a prefetch
  size_t* firsts;
  size_t place_count;
};

CUresult check_ranges(const Ranges& r, unsigned long long flags, CUstream stream, bool per_thread) {
  const bool legacy = stream == CU_STREAM_LEGACY || (!stream && !per_thread);
  if (flags || legacy) return CUDA_ERROR_INVALID_VALUE;
  unsigned ignored;
  auto* ask = per_thread ? real().cuStreamGetFlags_ptsz : real().cuStreamGetFlags;
  if (CUresult result = ask(stream, &ignored)) return result;
  if (!r.places) return CUDA_SUCCESS;
  if (!r.firsts || !r.place_count || r.place_count > r.count || r.firsts[0])
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t k = 0; k < r.place_count; ++k) {
    if (k && (r.firsts[k] <= r.firsts[k - 1] || r.firsts[k] >= r.count))
      return CUDA_ERROR_INVALID_VALUE;
    if (!device_exists(place_of(r.places[k]))) return CUDA_ERROR_INVALID_DEVICE;
  }
  return CUDA_SUCCESS;
}

template <typename F>
CUresult each_range(const Ranges& r, F native) {
  size_t place = 0;
  for (size_t i = 0; i < r.count; ++i) {
    if (r.places && place + 1 < r.place_count && r.firsts[place + 1] == i) ++place;
    const bool ours = managed(r.addresses[i], r.sizes[i], [&](Advice* a) {
      if (r.places) a->last_prefetch = place_of(r.places[place]);
    });
    size_t first = 0;
    if (ours) continue;
    if (CUresult result =
            native(&r.addresses[i], &r.sizes[i], r.places ? &r.places[place] : nullptr, &first))
      return result;
  }
  return CUDA_SUCCESS;
}

using PrefetchBatch = CUresult (*)(CUdeviceptr*, size_t*, size_t, CUmemLocation*, size_t*, size_t,
                                   unsigned long long, CUstream);
using DiscardBatch = CUresult (*)(CUdeviceptr*, size_t*, size_t, unsigned long long, CUstream);

CUresult prefetch_ranges(const Ranges& r, unsigned long long flags, CUstream stream,
                         bool per_thread, PrefetchBatch native) {
  if (!r.places || !any_is_ours(r.addresses, r.sizes, r.count))
    return native(r.addresses, r.sizes, r.count, r.places, r.firsts, r.place_count, flags, stream);
  if (CUresult result = check_ranges(r, flags, stream, per_thread)) return result;
  return each_range(r, [&](CUdeviceptr* at, size_t* bytes, CUmemLocation* place, size_t* first) {
    return native(at, bytes, 1, place, first, 1, flags, stream);
  });
}

CUresult discard_ranges(const Ranges& r, unsigned long long flags, CUstream stream, bool per_thread,
                        DiscardBatch native) {
  if (!any_is_ours(r.addresses, r.sizes, r.count))
    return native(r.addresses, r.sizes, r.count, flags, stream);
  if (CUresult result = check_ranges(r, flags, stream, per_thread)) return result;
  return each_range(r, [&](CUdeviceptr* at, size_t* bytes, CUmemLocation*, size_t*) {
    return native(at, bytes, 1, flags, stream);
  });
}

CUresult range_attribute(void* data, size_t size, CUmem_range_attribute attribute,
                         const Advice& a) {
  if (!data || !size) return CUDA_ERROR_INVALID_VALUE;
  auto* out = static_cast<int*>(data);
  size_t room = size / sizeof(int);
  auto type_of = [](int device) {
    return device == CU_DEVICE_INVALID ? CU_MEM_LOCATION_TYPE_INVALID
           : device == CU_DEVICE_CPU   ? CU_MEM_LOCATION_TYPE_HOST
                                       : CU_MEM_LOCATION_TYPE_DEVICE;
  };
  if (!room) return CUDA_ERROR_INVALID_VALUE;
  switch (static_cast<int>(attribute)) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      *out = a.read_mostly;
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      *out = a.preferred;
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      *out = a.last_prefetch;
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      *out = type_of(a.preferred);
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      *out = type_of(a.last_prefetch);
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: {
      size_t n = 0;
      for (int device = 0; device < 31 && n < room; ++device)
        if (a.accessed_by & (1u << device)) out[n++] = device;
      if ((a.accessed_by >> 31) && n < room) out[n++] = CU_DEVICE_CPU;
      while (n < room) out[n++] = CU_DEVICE_INVALID;
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_VALUE;
}

bool advice_of(CUdeviceptr address, size_t bytes, Advice* out) {
  return managed(address, bytes, [&](Advice* a) { *out = *a; });
}

}  // namespace
}  // namespace device

using namespace device;

CUresult hook_cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) {
  CUresult result;
  return advise(devPtr, count, advice, device, &result)
             ? result
             : real().cuMemAdvise(devPtr, count, advice, device);
}
CUresult hook_cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                             CUmemLocation location) {
  CUresult result;
  return advise(devPtr, count, advice, place_of(location), &result)
             ? result
             : real().cuMemAdvise_v2(devPtr, count, advice, location);
}
CUresult hook_cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                                 CUstream hStream) {
  CUresult result;
  return prefetch(devPtr, count, dstDevice, hStream, &result)
             ? result
             : real().cuMemPrefetchAsync(devPtr, count, dstDevice, hStream);
}
CUresult hook_cuMemPrefetchAsync_ptsz(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                                      CUstream hStream) {
  CUresult result;
  return prefetch(devPtr, count, dstDevice, hStream, &result)
             ? result
             : real().cuMemPrefetchAsync_ptsz(devPtr, count, dstDevice, hStream);
}
CUresult hook_cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                                    unsigned int flags, CUstream hStream) {
  CUresult result;
  return prefetch(devPtr, count, place_of(location), hStream, &result)
             ? result
             : real().cuMemPrefetchAsync_v2(devPtr, count, location, flags, hStream);
}
CUresult hook_cuMemPrefetchAsync_v2_ptsz(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                                         unsigned int flags, CUstream hStream) {
  CUresult result;
  return prefetch(devPtr, count, place_of(location), hStream, &result)
             ? result
             : real().cuMemPrefetchAsync_v2_ptsz(devPtr, count, location, flags, hStream);
}
CUresult hook_cuMemPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                      CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                      size_t numPrefetchLocs, unsigned long long flags,
                                      CUstream hStream) {
  return prefetch_ranges({dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs},
                         flags, hStream, false, real().cuMemPrefetchBatchAsync);
}
CUresult hook_cuMemPrefetchBatchAsync_ptsz(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                           CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                           size_t numPrefetchLocs, unsigned long long flags,
                                           CUstream hStream) {
  return prefetch_ranges({dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs},
                         flags, hStream, true, real().cuMemPrefetchBatchAsync_ptsz);
}
CUresult hook_cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                                CUmemLocation* prefetchLocs,
                                                size_t* prefetchLocIdxs, size_t numPrefetchLocs,
                                                unsigned long long flags, CUstream hStream) {
  return prefetch_ranges({dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs},
                         flags, hStream, false, real().cuMemDiscardAndPrefetchBatchAsync);
}
CUresult hook_cuMemDiscardAndPrefetchBatchAsync_ptsz(CUdeviceptr* dptrs, size_t* sizes,
                                                     size_t count, CUmemLocation* prefetchLocs,
                                                     size_t* prefetchLocIdxs,
                                                     size_t numPrefetchLocs,
                                                     unsigned long long flags, CUstream hStream) {
  return prefetch_ranges({dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs},
                         flags, hStream, true, real().cuMemDiscardAndPrefetchBatchAsync_ptsz);
}
CUresult hook_cuMemDiscardBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                     unsigned long long flags, CUstream hStream) {
  return discard_ranges({dptrs, sizes, count, nullptr, nullptr, 0}, flags, hStream, false,
                        real().cuMemDiscardBatchAsync);
}
CUresult hook_cuMemDiscardBatchAsync_ptsz(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                          unsigned long long flags, CUstream hStream) {
  return discard_ranges({dptrs, sizes, count, nullptr, nullptr, 0}, flags, hStream, true,
                        real().cuMemDiscardBatchAsync_ptsz);
}
CUresult hook_cuMemRangeGetAttribute(void* data, size_t dataSize, CUmem_range_attribute attribute,
                                     CUdeviceptr devPtr, size_t count) {
  Advice advice;
  return advice_of(devPtr, count, &advice)
             ? range_attribute(data, dataSize, attribute, advice)
             : real().cuMemRangeGetAttribute(data, dataSize, attribute, devPtr, count);
}
CUresult hook_cuMemRangeGetAttributes(void** data, size_t* dataSizes,
                                      CUmem_range_attribute* attributes, size_t numAttributes,
                                      CUdeviceptr devPtr, size_t count) {
  Advice advice;
  if (!data || !dataSizes || !attributes || !advice_of(devPtr, count, &advice))
    return real().cuMemRangeGetAttributes(data, dataSizes, attributes, numAttributes, devPtr,
                                          count);
  for (size_t i = 0; i < numAttributes; ++i)
    if (CUresult result = range_attribute(data[i], dataSizes[i], attributes[i], advice))
      return result;
  return CUDA_SUCCESS;
}
CUresult hook_cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                     unsigned int flags) {
  unsigned ignored;
  if (!managed(dptr, 1, [](Advice*) {}))
    return real().cuStreamAttachMemAsync(hStream, dptr, length, flags);
  return real().cuStreamGetFlags(hStream, &ignored);
}
CUresult hook_cuStreamAttachMemAsync_ptsz(CUstream hStream, CUdeviceptr dptr, size_t length,
                                          unsigned int flags) {
  unsigned ignored;
  if (!managed(dptr, 1, [](Advice*) {}))
    return real().cuStreamAttachMemAsync_ptsz(hStream, dptr, length, flags);
  return real().cuStreamGetFlags(hStream, &ignored);
}

}  // namespace gpuckpt
