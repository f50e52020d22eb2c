// What ordinary kernels are written with: warp and byte intrinsics, switches, calls, local arrays,
// launch bounds, volatile and cache operators, textures, printf, assert, malloc.
#include <assert.h>
#include <stdio.h>

struct Node {
  int key;
  Node* next;
  float weights[3];
};
struct Shape {
  __device__ virtual float area() const = 0;
  __device__ virtual ~Shape() {}
};
struct Circle : Shape {
  float r;
  __device__ explicit Circle(float x) : r(x) {}
  __device__ float area() const override { return 3.0f * r * r; }
};
struct Square : Shape {
  float a;
  __device__ explicit Square(float x) : a(x) {}
  __device__ float area() const override { return a * a; }
};

__constant__ float table[64];
__device__ int counter;
__device__ float (*chosen)(float);
__managed__ int managed;

__device__ __noinline__ float twice(float x) { return x * 2; }
__device__ __noinline__ float third(float x) { return x / 3; }
__device__ __noinline__ float4 four(float4 a, Node n) {
  a.x += n.weights[n.key & 1];
  return a;
}
__device__ __noinline__ int recurse(int n) { return n < 2 ? n : recurse(n - 1) + recurse(n - 2); }

__global__ void __launch_bounds__(256, 2) everyday(int* data, float4* wide, Node* nodes) {
  extern __shared__ int dynamic[];
  __shared__ volatile int flags[64];
  int id = blockIdx.x * blockDim.x + threadIdx.x, x = data[id];
  flags[threadIdx.x & 63] = x;
  dynamic[threadIdx.x] = flags[(threadIdx.x + 1) & 63];
  __syncthreads();
  switch (x & 15) {
    case 0:
      x += __popc(x);
      break;
    case 1:
      x = __brev(x);
      break;
    case 2:
      x = __clz(x) + __ffs(x);
      break;
    case 3:
      x = __byte_perm(x, id, 0x5410);
      break;
    case 4:
      x = __funnelshift_l(x, id, 7);
      break;
    case 5:
      x = __dp4a(x, id, x);
      break;
    case 6:
      x = __vabsdiffs4(x, id) + __vaddus2(x, id) + __vcmpgtu4(x, id);
      break;
    case 7:
      x = __mulhi(x, id) + __umul24(x, id) + __usad(x, id, 3u);
      break;
    case 8:
      x = __rhadd(x, id) + __hadd(x, id) + __fns(x, 0, 2);
      break;
    case 9:
      x = recurse(x & 7);
      break;
    default:
      x = __sad(x, id, 9);
      break;
  }
  x += __shfl_xor_sync(~0u, x, 1) + __ballot_sync(~0u, x > 3) + __any_sync(~0u, x == 2);
  x += __match_any_sync(~0u, x & 3) + __activemask() + __syncthreads_count(x > 2);
  float local[16];
  for (int k = 0; k < 16; ++k) local[k] = table[(x + k) & 63];
  float sum = 0;
  for (int k = 0; k < 16; ++k) sum += local[(x >> k) & 15];
  chosen = x & 1 ? twice : third;
  sum = chosen(sum);
  wide[id] = four(__ldg(wide + id), nodes[id & 3]);
  __stcs(data + id, __ldcg(data + id) + x);
  atomicAdd(&counter, 1);
  atomicCAS(data, x, id);
  atomicMax(reinterpret_cast<unsigned long long*>(wide), 5ull);
  atomicInc(reinterpret_cast<unsigned*>(data), 100);
  atomicAdd_system(&managed, 1);
  atomicAdd_block(&dynamic[0], 1);
  __threadfence_system();
  __nanosleep(10);
  auto* shape = x & 1 ? static_cast<Shape*>(new Circle(sum)) : new Square(sum);
  sum += shape->area();
  delete shape;
  char* room = static_cast<char*>(alloca(x & 127));
  room[0] = static_cast<char>(sum);
  void* heap = malloc(100);
  if (heap == nullptr) printf("none %d %s %f %c %llx\n", x, "left", sum, room[0], 5ull);
  free(heap);
  assert(sum == sum);
  if (x == 12345) __trap();
  data[id] += static_cast<int>(clock64() - clock64()) + room[0] + static_cast<int>(sum);
}

__global__ void textures(cudaTextureObject_t t, cudaSurfaceObject_t s, float4* out) {
  int id = threadIdx.x;
  float x = id * 0.1f;
  float4 v = tex1D<float4>(t, x), w = tex2D<float4>(t, x, x), u = tex3D<float4>(t, x, x, x);
  float4 l = tex2DLayered<float4>(t, x, x, 1), c = texCubemap<float4>(t, x, x, x);
  float4 m = tex2DLod<float4>(t, x, x, 1.5f), g = tex2Dgather<float4>(t, x, x, 1);
  float4 d = tex2DGrad<float4>(t, x, x, make_float2(x, 0), make_float2(0, x));
  float4 a = texCubemapLayered<float4>(t, x, x, x, 1), b = tex1DLayered<float4>(t, x, 2);
  int4 i = tex1Dfetch<int4>(t, id);
  uchar4 p;
  surf2Dread(&p, s, id * 4, 1, cudaBoundaryModeClamp);
  surf2Dwrite(p, s, id * 4, 2, cudaBoundaryModeZero);
  surf3Dwrite(u, s, id * 16, 2, 3);
  surf1Dwrite(x, s, id * 4);
  surf2DLayeredwrite(x, s, id * 4, 0, 1);
  short2 q = surf1Dread<short2>(s, id * 4);
  out[id] = make_float4(v.x + w.y + l.x + m.w, u.z + c.x + g.y, d.x + i.x + a.z, p.x + q.y + b.x);
}
