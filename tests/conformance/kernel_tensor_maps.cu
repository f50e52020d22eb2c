// Tensor maps (TMA): boxes of tensors of one to five dimensions between global and shared memory,
// at places inside, across and outside the edges, with element strides and swizzles, from maps in
// kernel parameters, constant and global memory; against loops that do the same. Compute
// capability 9.0.
#include <initializer_list>

#include <cuda.h>
#include <cuda/barrier>
#include <cuda/ptx>

#include "conformance.h"

struct Place {
  int at[5];
};

// One thread loads the box; all copy it out as it lies in shared memory. Maps of any space: the
// address is a generic one.
template <int N>
__device__ void load_box(const CUtensorMap* map, void* box, uint64_t* bar, const Place& p) {
  const auto to = (unsigned)__cvta_generic_to_shared(box);
  const auto b = (unsigned)__cvta_generic_to_shared(bar);
  if constexpr (N == 1)
    asm volatile(
        "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2}], [%3];" ::"r"(to),
        "l"(map), "r"(p.at[0]), "r"(b)
        : "memory");
  if constexpr (N == 2)
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
        "l"(map), "r"(p.at[0]), "r"(p.at[1]), "r"(b)
        : "memory");
  if constexpr (N == 3)
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
        "l"(map), "r"(p.at[0]), "r"(p.at[1]), "r"(p.at[2]), "r"(b)
        : "memory");
  if constexpr (N == 4)
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
        "l"(map), "r"(p.at[0]), "r"(p.at[1]), "r"(p.at[2]), "r"(p.at[3]), "r"(b)
        : "memory");
  if constexpr (N == 5)
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(to),
        "l"(map), "r"(p.at[0]), "r"(p.at[1]), "r"(p.at[2]), "r"(p.at[3]), "r"(p.at[4]), "r"(b)
        : "memory");
}

template <int N>
__device__ void load_and_copy(const CUtensorMap* map, const Place& p, unsigned bytes,
                              uint8_t* out) {
  extern __shared__ __align__(1024) uint8_t box[];
  __shared__ __align__(8) uint64_t bar;
  if (threadIdx.x == 0) {
    cuda::ptx::mbarrier_init(&bar, 1);
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
    cuda::ptx::mbarrier_arrive_expect_tx(cuda::ptx::sem_release, cuda::ptx::scope_cta,
                                         cuda::ptx::space_shared, &bar, bytes);
    load_box<N>(map, box, &bar, p);
  }
  __syncthreads();
  while (!cuda::ptx::mbarrier_try_wait_parity(&bar, 0)) {
  }
  for (unsigned k = threadIdx.x; k < bytes; k += blockDim.x) out[k] = box[k];
}

template <int N>
__global__ void load(const __grid_constant__ CUtensorMap map, Place p, unsigned bytes,
                     uint8_t* out) {
  load_and_copy<N>(&map, p, bytes, out);
}

__constant__ CUtensorMap constant_map;
__device__ CUtensorMap global_map;
__global__ void load_from_constant(Place p, unsigned bytes, uint8_t* out) {
  load_and_copy<2>(&constant_map, p, bytes, out);
}
// The map was written by another kernel: its proxy must be told.
__global__ void load_from_global(Place p, unsigned bytes, uint8_t* out) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(&global_map)
               : "memory");
  load_and_copy<2>(&global_map, p, bytes, out);
}
__global__ void put_map(const __grid_constant__ CUtensorMap map) {
  if (threadIdx.x < 16) global_map.opaque[threadIdx.x] = map.opaque[threadIdx.x];
}

template <int N>
__global__ void store(const __grid_constant__ CUtensorMap map, Place p, unsigned bytes,
                      uint32_t salt) {
  extern __shared__ __align__(1024) uint8_t box[];
  for (unsigned k = threadIdx.x; k < bytes; k += blockDim.x) box[k] = (uint8_t)scramble(k + salt);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x != 0) return;
  const auto from = (unsigned)__cvta_generic_to_shared(box);
  if constexpr (N == 1)
    asm volatile(
        "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%0, {%1}], [%2];" ::"l"(&map),
        "r"(p.at[0]), "r"(from)
        : "memory");
  if constexpr (N == 2)
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
            &map),
        "r"(p.at[0]), "r"(p.at[1]), "r"(from)
        : "memory");
  if constexpr (N == 3)
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(
            &map),
        "r"(p.at[0]), "r"(p.at[1]), "r"(p.at[2]), "r"(from)
        : "memory");
  if constexpr (N == 4)
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(
            &map),
        "r"(p.at[0]), "r"(p.at[1]), "r"(p.at[2]), "r"(p.at[3]), "r"(from)
        : "memory");
  if constexpr (N == 5)
    asm volatile(
        "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4, %5}], [%6];" ::
            "l"(&map),
        "r"(p.at[0]), "r"(p.at[1]), "r"(p.at[2]), "r"(p.at[3]), "r"(p.at[4]), "r"(from)
        : "memory");
  asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
}

// As the programming guide does it, with the library's barrier: negate a tile in place.
__global__ void with_the_library(const __grid_constant__ CUtensorMap map, int x, int y) {
  using barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ alignas(128) int tile[8][32];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ barrier bar;
  if (threadIdx.x == 0) {
    init(&bar, (int)blockDim.x);
    cuda::device::experimental::fence_proxy_async_shared_cta();
  }
  __syncthreads();
  barrier::arrival_token token;
  if (threadIdx.x == 0) {
    cuda::device::experimental::cp_async_bulk_tensor_2d_global_to_shared(&tile, &map, x, y, bar);
    token = cuda::device::barrier_arrive_tx(bar, 1, sizeof tile);
  } else {
    token = bar.arrive();
  }
  bar.wait(std::move(token));
  for (int k = 0; k < 8; ++k) tile[k][threadIdx.x] = -tile[k][threadIdx.x];
  cuda::device::experimental::fence_proxy_async_shared_cta();
  __syncthreads();
  if (threadIdx.x != 0) return;
  cuda::device::experimental::cp_async_bulk_tensor_2d_shared_to_global(&map, x, y, &tile);
  cuda::device::experimental::cp_async_bulk_commit_group();
  cuda::device::experimental::cp_async_bulk_wait_group_read<0>();
}

// ---- the host ----

static decltype(&cuTensorMapEncodeTiled) encode;
static decltype(&cuTensorMapReplaceAddress) replace;

struct Tensor {
  int rank;
  CUtensorMapDataType type;
  unsigned each;
  uint64_t extent[5];
  unsigned box[5], step[5];
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  CUtensorMapFloatOOBfill fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
  uint64_t stride[5] = {};  // bytes; [0] an element's
  uint64_t bytes = 0;

  Tensor(int r, CUtensorMapDataType t, unsigned e, std::vector<uint64_t> x, std::vector<unsigned> b,
         std::vector<unsigned> s = {})
      : rank(r), type(t), each(e) {
    for (int d = 0; d < 5; ++d) {
      extent[d] = d < r ? x[d] : 1;
      box[d] = d < r ? b[d] : 1;
      step[d] = d < r && !s.empty() ? s[d] : 1;
      stride[d] = d == 0   ? e
                  : d == 1 ? (extent[0] * e + 31) / 16 * 16
                           : stride[d - 1] * extent[d - 1] + 16;
    }
    bytes = stride[4] * extent[4] + 64;
  }
  unsigned count(int d) const { return d == 0 ? box[0] : (box[d] + step[d] - 1) / step[d]; }
  unsigned box_bytes() const {
    unsigned n = each;
    for (int d = 0; d < 5; ++d) n *= count(d);
    return n;
  }
  CUtensorMap map(void* base) const {
    static CUtensorMap m;  // not in place of a temporary, which g++ does not align as it must
    const CUresult r =
        encode(&m, type, (cuuint32_t)rank, base, extent, stride + 1, box, step,
               CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, fill);
    EXPECT(r == CUDA_SUCCESS);
    return m;
  }
  // Byte of shared memory for byte `at` of the box.
  unsigned place(unsigned at) const {
    const unsigned line = at / 128;
    switch (swizzle) {
      case CU_TENSOR_MAP_SWIZZLE_32B:
        return at ^ (line % 2 * 16);
      case CU_TENSOR_MAP_SWIZZLE_64B:
        return at ^ (line % 4 * 16);
      case CU_TENSOR_MAP_SWIZZLE_128B:
        return at ^ (line % 8 * 16);
      case CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B:
        return at ^ (line % 4 * 32);
      default:
        return at;
    }
  }
  // Calls f(byte in shared memory, offset in the tensor or -1) for each byte of the box.
  template <class F>
  void each_byte(const Place& p, F f) const {
    unsigned n[5], at = 0;
    for (n[4] = 0; n[4] < count(4); ++n[4])
      for (n[3] = 0; n[3] < count(3); ++n[3])
        for (n[2] = 0; n[2] < count(2); ++n[2])
          for (n[1] = 0; n[1] < count(1); ++n[1])
            for (n[0] = 0; n[0] < count(0); ++n[0]) {
              int64_t offset = 0;
              bool inside = true;
              for (int d = 0; d < rank; ++d) {
                const int64_t x = p.at[d] + (int64_t)n[d] * (d == 0 ? 1 : step[d]);
                inside &= x >= 0 && x < (int64_t)extent[d];
                offset += x * (int64_t)stride[d];
              }
              for (unsigned k = 0; k < each; ++k, ++at) f(place(at), inside ? offset + k : -1);
            }
  }
};

static std::vector<uint8_t> pattern(uint64_t n) {
  std::vector<uint8_t> v(n);
  for (uint64_t k = 0; k < n; ++k) v[k] = (uint8_t)scramble((uint32_t)k + 77);
  return v;
}

template <int N>
static void check(const Tensor& t, const Place& p) {
  const std::vector<uint8_t> before = pattern(t.bytes);
  DeviceVector<uint8_t> data(before), out(t.box_bytes());
  const CUtensorMap map = t.map(data.get());
  load<N><<<1, 64, t.box_bytes()>>>(map, p, t.box_bytes(), out.get());
  CHECK(cudaDeviceSynchronize());
  const auto got = out.copy();
  t.each_byte(p,
              [&](unsigned at, int64_t from) { EXPECT(got[at] == (from < 0 ? 0 : before[from])); });

  store<N><<<1, 64, t.box_bytes()>>>(map, p, t.box_bytes(), 5);
  CHECK(cudaDeviceSynchronize());
  std::vector<uint8_t> want = before;
  t.each_byte(p, [&](unsigned at, int64_t to) {
    if (to >= 0) want[to] = (uint8_t)scramble(at + 5);
  });
  EXPECT(data.copy() == want);
}

static void all_dimensions() {
  const Tensor one(1, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, {200}, {64});
  const Tensor two(2, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, {37, 19}, {16, 8});
  const Tensor three(3, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, {24, 7, 5}, {8, 4, 3});
  const Tensor four(4, CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 8, {6, 5, 4, 3}, {2, 3, 2, 2});
  const Tensor five(5, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, {16, 4, 3, 3, 2}, {16, 2, 2, 2, 2});
  for (int x : {0, 3, -5, 190, 1000, -64}) check<1>(one, {{x}});
  for (int x : {0, 30, -3, 37, -100})
    for (int y : {0, 15, -7, 19}) check<2>(two, {{x, y}});
  check<3>(three, {{8, 2, 1}});
  check<3>(three, {{-4, 5, 3}});
  check<4>(four, {{3, -1, 2, 1}});
  check<4>(four, {{5, 4, 3, 2}});
  check<5>(five, {{0, 1, 1, 2, 1}});
  check<5>(five, {{-8, -1, -1, -1, -1}});
}

static void steps_and_swizzles() {
  check<2>(Tensor(2, CU_TENSOR_MAP_DATA_TYPE_INT32, 4, {40, 30}, {8, 9}, {1, 2}), {{4, 3}});
  check<3>(Tensor(3, CU_TENSOR_MAP_DATA_TYPE_INT32, 4, {16, 9, 9}, {4, 7, 6}, {1, 3, 2}),
           {{-2, 1, 4}});
  const struct {
    CUtensorMapSwizzle swizzle;
    unsigned row;
  } kinds[] = {{CU_TENSOR_MAP_SWIZZLE_32B, 32},
               {CU_TENSOR_MAP_SWIZZLE_64B, 64},
               {CU_TENSOR_MAP_SWIZZLE_128B, 128},
               {CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B, 128}};
  for (const auto& k : kinds) {
    Tensor t(2, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, {100, 40}, {k.row / 2, 16});
    t.swizzle = k.swizzle;
    check<2>(t, {{16, 8}});
    check<2>(t, {{-8, 30}});
  }
}

static void nan_outside() {
  Tensor t(2, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, {8, 8}, {4, 4});
  t.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
  DeviceVector<uint8_t> data(t.bytes), out(t.box_bytes());
  load<2><<<1, 32, t.box_bytes()>>>(t.map(data.get()), Place{{6, 0}}, t.box_bytes(), out.get());
  const auto raw = out.copy();
  for (int k = 0; k < 16; ++k) {
    float v;
    memcpy(&v, &raw[k * 4], 4);
    EXPECT(k % 4 < 2 ? v == 0 : isnan(v));
  }
}

static void maps_in_memory() {
  const Tensor t(2, CU_TENSOR_MAP_DATA_TYPE_UINT32, 4, {32, 16}, {32, 8});
  const auto first = pattern(t.bytes);
  std::vector<uint8_t> second = first;
  for (auto& b : second) b = (uint8_t)~b;
  DeviceVector<uint8_t> a(first), b(second), out(t.box_bytes());
  CUtensorMap map = t.map(a.get());
  const Place p{{0, 4}};
  auto expect = [&](const std::vector<uint8_t>& from) {
    const auto got = out.copy();
    t.each_byte(p, [&](unsigned at, int64_t offset) { EXPECT(got[at] == from[offset]); });
  };
  CHECK(cudaMemcpyToSymbol(constant_map, &map, sizeof map));
  load_from_constant<<<1, 64, t.box_bytes()>>>(p, t.box_bytes(), out.get());
  expect(first);
  EXPECT(replace(&map, b.get()) == CUDA_SUCCESS);
  put_map<<<1, 32>>>(map);
  load_from_global<<<1, 64, t.box_bytes()>>>(p, t.box_bytes(), out.get());
  expect(second);
  EXPECT(replace(&map, (char*)b.get() + 4) == CUDA_ERROR_INVALID_VALUE);
}

static void library() {
  const Tensor t(2, CU_TENSOR_MAP_DATA_TYPE_INT32, 4, {64, 32}, {32, 8});
  std::vector<int> host(t.bytes / 4);
  for (size_t k = 0; k < host.size(); ++k) host[k] = (int)k;
  DeviceVector<int> data(host);
  with_the_library<<<1, 32>>>(t.map(data.get()), 16, 8);
  CHECK(cudaDeviceSynchronize());
  const auto got = data.copy();
  t.each_byte({{16, 8}}, [&](unsigned, int64_t at) { host[at / 4] = -(int)(at / 4); });
  EXPECT(got == host);
}

static void bad_maps() {
  Tensor t(2, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, {32, 16}, {16, 8});
  DeviceVector<uint8_t> data(t.bytes);
  CUtensorMap m;
  auto wrong = [&](auto change) {
    Tensor bad = t;
    void* base = data.get();
    change(bad, base);
    EXPECT(encode(&m, bad.type, (cuuint32_t)bad.rank, base, bad.extent, bad.stride + 1, bad.box,
                  bad.step, CU_TENSOR_MAP_INTERLEAVE_NONE, bad.swizzle,
                  CU_TENSOR_MAP_L2_PROMOTION_NONE, bad.fill) == CUDA_ERROR_INVALID_VALUE);
  };
  wrong([](Tensor&, void*& base) { base = (char*)base + 8; });
  wrong([](Tensor& b, void*&) { b.rank = 6; });
  wrong([](Tensor& b, void*&) { b.stride[1] += 4; });
  wrong([](Tensor& b, void*&) { b.box[0] = 3; });
  wrong([](Tensor& b, void*&) { b.box[1] = 257; });
  wrong([](Tensor& b, void*&) { b.step[1] = 9; });
  wrong([](Tensor& b, void*&) { b.extent[1] = 0; });
  wrong([](Tensor& b, void*&) { b.swizzle = CU_TENSOR_MAP_SWIZZLE_32B; });  // rows of 64 bytes
  wrong([](Tensor& b, void*&) {
    b.type = CU_TENSOR_MAP_DATA_TYPE_INT32;
    b.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
  });
}

int main() {
  cudaDriverEntryPointQueryResult found;
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void**)&encode, 12000,
                                         cudaEnableDefault, &found));
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapReplaceAddress", (void**)&replace, 12000,
                                         cudaEnableDefault, &found));
  all_dimensions();
  steps_and_swizzles();
  nan_outside();
  maps_in_memory();
  library();
  bad_maps();
  return passed();
}
