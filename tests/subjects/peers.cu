// Four devices that read each other's memory: peer access both ways, one way, given and taken back
// while the program runs; memory of pools and the program's own mappings, which say for themselves
// who may read them; copies between devices of every kind. One stream each, and events across.
#include <initializer_list>

#include <cuda.h>

#include "subject.h"

constexpr int kDevices = 4, kWords = 4096, kBlocks = 16;
constexpr size_t kBytes = kWords * sizeof(uint32_t);

__global__ void fold(uint32_t* mine, const uint32_t* theirs, uint32_t step) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  mine[i] = mix(mine[i] + theirs[(i * 7 + step) % kWords]);
}
__global__ void fill(uint32_t* data, uint32_t seed) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  data[i] = mix(seed + i);
}

struct Device {
  int number;
  cudaStream_t stream;
  cudaEvent_t done;
  uint32_t *own, *copied, *pooled;
  cudaMemPool_t pool;
  cudaPitchedPtr box[2];  // in turn what is read and what is written
};
Device gpus[kDevices];
uint32_t* window;  // on device 1, for all devices: a page each, one behind the other
size_t page_bytes;
bool lent = false;  // device 0 lets device 2 in

const cudaExtent kExtent = {128, 8, 4};

uint32_t* page_of(int device) { return window + device * page_bytes / sizeof(uint32_t); }

void use(int device) { CHECK(cudaSetDevice(device)); }

void allow(int reader, int owner, bool on) {
  use(reader);
  CHECK(on ? cudaDeviceEnablePeerAccess(owner, 0) : cudaDeviceDisablePeerAccess(owner));
}

void make(Device& d, int number) {
  d.number = number;
  use(number);
  CHECK(cudaStreamCreateWithFlags(&d.stream, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&d.done, cudaEventDisableTiming));
  CHECK(cudaMalloc(&d.own, kBytes));
  CHECK(cudaMalloc(&d.copied, kBytes));
  CHECK(cudaMemset(d.copied, number, kBytes));
  for (cudaPitchedPtr& box : d.box) {
    CHECK(cudaMalloc3D(&box, kExtent));
    CHECK(cudaMemset3D(box, number, kExtent));
  }
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, number};
  CHECK(cudaMemPoolCreate(&d.pool, &properties));
  for (int reader = 0; reader < kDevices; ++reader) {
    cudaMemAccessDesc access = {};
    access.location = {cudaMemLocationTypeDevice, reader};
    access.flags = cudaMemAccessFlagsProtReadWrite;
    if (reader != number) CHECK(cudaMemPoolSetAccess(d.pool, &access, 1));
  }
  CHECK(cudaMallocFromPoolAsync(&d.pooled, kBytes, d.pool, d.stream));
  fill<<<kBlocks, kWords / kBlocks, 0, d.stream>>>(d.own, number);
  fill<<<kBlocks, kWords / kBlocks, 0, d.stream>>>(d.pooled, number + 100);
  CHECK(cudaStreamSynchronize(d.stream));
}

void make_window() {
  use(1);
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = 1;
  CHECK(cuMemGetAllocationGranularity(&page_bytes, &properties,
                                      CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  CUdeviceptr at;
  CHECK(cuMemAddressReserve(&at, kDevices * page_bytes, 0, 0, 0));
  CUmemAccessDesc access[kDevices] = {};
  for (int i = 0; i < kDevices; ++i) {
    CUmemGenericAllocationHandle page;
    CHECK(cuMemCreate(&page, page_bytes, &properties, 0));
    CHECK(cuMemMap(at + i * page_bytes, page_bytes, 0, page, 0));
    CHECK(cuMemRelease(page));
    access[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access[i].location.id = i;
    access[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  CHECK(cuMemSetAccess(at, kDevices * page_bytes, access, kDevices));
  CHECK(cuMemsetD32(at, 9, kDevices * page_bytes / sizeof(uint32_t)));
  window = reinterpret_cast<uint32_t*>(at);
}

// The part that is not written after make_window(): no other check would notice its loss.
void check_window() {
  std::vector<uint32_t> words(page_bytes / sizeof(uint32_t));
  for (int i = 0; i < kDevices; ++i) {
    CHECK(cudaMemcpy(words.data(), page_of(i), page_bytes, cudaMemcpyDefault));
    for (size_t k = kWords; k < words.size(); ++k) EXPECT(words[k] == 9);
  }
}

// A graph with memory of its own, which its kernels see by address.
cudaGraphExec_t make_graph(const Device& d) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  uint32_t* own;
  use(d.number);
  CHECK(cudaStreamBeginCapture(d.stream, cudaStreamCaptureModeGlobal));
  CHECK(cudaMallocAsync(&own, kBytes, d.stream));
  CHECK(cudaMemcpyAsync(own, d.own, kBytes, cudaMemcpyDefault, d.stream));
  fold<<<kBlocks, kWords / kBlocks, 0, d.stream>>>(d.own, own, 3);
  CHECK(cudaFreeAsync(own, d.stream));
  CHECK(cudaStreamEndCapture(d.stream, &graph));
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  CHECK(cudaGraphDestroy(graph));
  return executable;
}

// `d` goes on when `other` has come as far.
void wait_for(const Device& d, const Device& other) {
  use(other.number);
  CHECK(cudaEventRecord(other.done, other.stream));
  use(d.number);
  CHECK(cudaStreamWaitEvent(d.stream, other.done, 0));
}
void everybody_waits() {
  for (Device& d : gpus)
    for (Device& other : gpus)
      if (&other != &d) wait_for(d, other);
}

void read_peer(const Device& d, const uint32_t* theirs, uint32_t step) {
  use(d.number);
  fold<<<kBlocks, kWords / kBlocks, 0, d.stream>>>(d.own, theirs, step);
  CHECK(cudaGetLastError());
}

void read_peers(uint32_t step) {
  read_peer(gpus[0], gpus[1].copied, step);  // both ways
  read_peer(gpus[1], gpus[0].copied, step);
  read_peer(gpus[3], gpus[2].copied, step);  // one way
  read_peer(gpus[2], lent ? gpus[0].copied : gpus[2].copied, step);
}

void read_shared(uint32_t step) {
  for (Device& d : gpus) {
    Device& next = gpus[(d.number + 1) % kDevices];
    read_peer(d, next.pooled, step);
    read_peer(d, page_of(next.number), step);
    uint32_t* fresh;  // this one's, for a moment, read by all
    CHECK(cudaMallocFromPoolAsync(&fresh, kBytes, d.pool, d.stream));
    fill<<<kBlocks, kWords / kBlocks, 0, d.stream>>>(fresh, step + d.number);
    wait_for(next, d);
    read_peer(next, fresh, step);
    wait_for(d, next);
    use(d.number);
    CHECK(cudaFreeAsync(fresh, d.stream));
  }
}

void copy_round(uint32_t step) {
  if (step % 2 == 0 || step % 3 == 0)  // copies that go by no stream of ours
    for (Device& d : gpus) CHECK(cudaStreamSynchronize(d.stream));
  for (Device& d : gpus) {
    const Device& next = gpus[(d.number + 1 + step % 3) % kDevices];
    use(d.number);
    if (step % 2) {
      CHECK(cudaMemcpyPeerAsync(d.copied, d.number, next.own, next.number, kBytes, d.stream));
    } else {
      CHECK(cudaMemcpyPeer(d.copied, d.number, next.own, next.number, kBytes));
    }
    CHECK(cudaMemcpyAsync(page_of(d.number), d.own, kBytes, cudaMemcpyDefault, d.stream));
    cudaMemcpy3DPeerParms box = {};
    box.srcDevice = next.number, box.dstDevice = d.number;
    box.srcPtr = next.box[step % 2], box.dstPtr = d.box[1 - step % 2];
    box.srcPos.y = step % 4, box.dstPos.z = step % 3;
    box.extent = {kExtent.width, 4, 1};
    if (step % 3)
      CHECK(cudaMemcpy3DPeerAsync(&box, d.stream));
    else
      CHECK(cudaMemcpy3DPeer(&box));
    CHECK(cudaMemcpy2DAsync(box.dstPtr.ptr, box.dstPtr.pitch, d.own, 128, 128, 4, cudaMemcpyDefault,
                            d.stream));
    CHECK(cudaMemcpyAsync(d.pooled, d.own, kBytes / 2, cudaMemcpyDefault, d.stream));
  }
}

int main(int argc, char** argv) {
  setenv("SIMGPU_DEVICES", "4", 0);
  Steps steps(argc, argv);
  int devices = 0;
  CHECK(cudaGetDeviceCount(&devices));
  EXPECT(devices >= kDevices);
  for (int i = 0; i < kDevices; ++i) make(gpus[i], i);
  allow(0, 1, true);
  allow(1, 0, true);
  allow(3, 2, true);
  make_window();
  // The device that was first with such memory has none left later.
  CHECK(cudaGraphExecDestroy(make_graph(gpus[3])));
  const cudaGraphExec_t graphs[] = {make_graph(gpus[1]), make_graph(gpus[0])};
  Digest digest;
  std::vector<uint32_t> host(kWords);
  for (int step = 1; step <= steps.count(); ++step) {
    if (step % 5 == 0) allow(2, 0, lent = !lent);
    read_peers(step);
    everybody_waits();
    read_shared(step);
    for (int i : {0, 1}) CHECK(cudaGraphLaunch(graphs[i], gpus[1 - i].stream));
    everybody_waits();
    copy_round(step);
    everybody_waits();
    for (Device& d : gpus) {
      use(d.number);
      const cudaPitchedPtr& box = d.box[1 - step % 2];
      for (const uint32_t* from : {d.own, d.copied}) {
        CHECK(cudaMemcpyAsync(host.data(), from, kBytes, cudaMemcpyDeviceToHost, d.stream));
        CHECK(cudaStreamSynchronize(d.stream));
        digest.add(host);
      }
      CHECK(cudaMemcpy2DAsync(host.data(), kExtent.width, box.ptr, box.pitch, kExtent.width,
                              kExtent.height * kExtent.depth, cudaMemcpyDeviceToHost, d.stream));
      CHECK(cudaStreamSynchronize(d.stream));
      digest.add(host.data(), kExtent.width * kExtent.height * kExtent.depth);
    }
    // A device without access may not read it: as natively, an error of the call.
    int can = 0;
    use(3);
    CHECK(cudaDeviceCanAccessPeer(&can, 3, 2));
    EXPECT(can == 1 && cudaDeviceEnablePeerAccess(2, 0) == cudaErrorPeerAccessAlreadyEnabled);
    cudaGetLastError();
    use(2);
    EXPECT(cudaDeviceDisablePeerAccess(3) == cudaErrorPeerAccessNotEnabled);
    cudaGetLastError();
    if (step % 8 == 0 || step == steps.count()) check_window();
    steps.report(step, digest);
  }
  return steps.finish(digest);
}
