#!/usr/bin/env python3
"""Trains a small character language model in Python, on kernels that NVRTC compiles, through the CUDA driver API.

An ordinary program that knows nothing of snapshots:

    python examples/train.py                                              on a GPU
    gpuckpt run --sim -- .venv/bin/python examples/train.py               on the simulated one
    gpuckpt run --sim -- .venv/bin/python examples/train.py --log train.log TEXT

Embedding -> tanh layer -> softmax over the next character; backward pass and Adam in kernels of its own. Two streams:
the next batch is copied from pinned memory while this one computes. Every step's loss and a digest of all weights at the
end are the same in every run, bit for bit: no atomics, sums in a fixed order.
"""
import argparse
import ctypes
import hashlib
import sys
import time

import numpy as np
from cuda.bindings import driver, nvrtc

CONTEXT, WIDTH, HIDDEN, BATCH, TILE = 8, 8, 48, 32, 8

KERNELS = r"""
typedef unsigned char byte;
__constant__ float adam[4];           // rate, beta1, beta2, epsilon
__device__ unsigned steps_done;       // the bias correction counts on the GPU

// c[m,n] = op(a) op(b) (+ bias[n]), shared-memory tiles; a is [m,k] or, transposed, [k,m]; likewise b.
template <bool TA, bool TB, bool TANH>
__device__ void product(const float* a, const float* b, const float* bias, float* c, int m, int n, int k) {
  __shared__ float as[TILE][TILE + 1], bs[TILE][TILE + 1];
  int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
  float sum = 0;
  for (int at = 0; at < k; at += TILE) {
    int ka = at + threadIdx.x, kb = at + threadIdx.y;
    as[threadIdx.y][threadIdx.x] = row < m && ka < k ? (TA ? a[ka * m + row] : a[row * k + ka]) : 0;
    bs[threadIdx.y][threadIdx.x] = col < n && kb < k ? (TB ? b[col * k + kb] : b[kb * n + col]) : 0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE; ++i) sum += as[threadIdx.y][i] * bs[i][threadIdx.x];
    __syncthreads();
  }
  if (row < m && col < n) {
    if (bias) sum += bias[col];
    c[row * n + col] = TANH ? tanhf(sum) : sum;
  }
}
extern "C" __global__ void forward_hidden(const float* x, const float* w, const float* b, float* y, int m, int n, int k) {
  product<false, false, true>(x, w, b, y, m, n, k);
}
extern "C" __global__ void forward_output(const float* x, const float* w, const float* b, float* y, int m, int n, int k) {
  product<false, false, false>(x, w, b, y, m, n, k);
}
extern "C" __global__ void backward_input(const float* dy, const float* w, float* dx, int m, int n, int k) {
  product<false, true, false>(dy, w, nullptr, dx, m, n, k);
}
extern "C" __global__ void backward_weight(const float* x, const float* dy, float* dw, int m, int n, int k) {
  product<true, false, false>(x, dy, nullptr, dw, m, n, k);
}

extern "C" __global__ void embed(const byte* text, const float* table, float* x, int positions) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < positions * WIDTH) x[i] = table[text[i / WIDTH] * WIDTH + i % WIDTH];
}
// One thread per table entry, positions in order: the same sum every time.
extern "C" __global__ void backward_embed(const byte* text, const float* dx, float* dtable, int positions, int entries) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= entries) return;
  float sum = 0;
  for (int p = 0; p < positions; ++p)
    if (text[p] == i / WIDTH) sum += dx[p * WIDTH + i % WIDTH];
  dtable[i] = sum;
}
// One warp per row: loss, and the logits' gradient in place.
extern "C" __global__ void softmax_loss(float* logits, const byte* next, float* loss, int classes, float scale) {
  float* row = logits + blockIdx.x * classes;
  int lane = threadIdx.x;
  float top = -1e30f, sum = 0;
  for (int c = lane; c < classes; c += 32) top = fmaxf(top, row[c]);
  for (int o = 16; o; o /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, o));
  for (int c = lane; c < classes; c += 32) sum += expf(row[c] - top);
  for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
  int right = next[blockIdx.x];
  if (lane == 0) loss[blockIdx.x] = logf(sum) + top - row[right];
  __syncwarp();
  for (int c = lane; c < classes; c += 32) row[c] = (expf(row[c] - top) / sum - (c == right)) * scale;
}
extern "C" __global__ void backward_tanh(float* dy, const float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) dy[i] *= 1 - y[i] * y[i];
}
extern "C" __global__ void column_sums(const float* x, float* sums, int rows, int columns) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  if (c < columns) {
    for (int r = 0; r < rows; ++r) sum += x[r * columns + c];
    sums[c] = sum;
  }
}
extern "C" __global__ void count_step() { ++steps_done; }
extern "C" __global__ void update(float* w, const float* g, float* m, float* v, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float rate = adam[0], b1 = adam[1], b2 = adam[2], t = steps_done;
  m[i] = b1 * m[i] + (1 - b1) * g[i];
  v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
  w[i] -= rate * (m[i] / (1 - powf(b1, t))) / (sqrtf(v[i] / (1 - powf(b2, t))) + adam[3]);
}
"""


def ok(answer):
    """The results of a call without its status; an exception with the driver's own words when it failed."""
    status, *values = answer
    if status != type(status)(0):
        raise RuntimeError(f"{type(status).__name__}: {status.name}")
    return values[0] if len(values) == 1 else values


def compile_kernels(device):
    major = ok(driver.cuDeviceGetAttribute(
        driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device))
    minor = ok(driver.cuDeviceGetAttribute(
        driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))
    program = ok(nvrtc.nvrtcCreateProgram(KERNELS.encode(), b"train.cu", 0, [], []))
    options = [f"--gpu-architecture=compute_{major}{minor}".encode(), f"-DTILE={TILE}".encode(),
               f"-DWIDTH={WIDTH}".encode()]
    status, = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = b" " * ok(nvrtc.nvrtcGetProgramLogSize(program))
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(log.decode())
    ptx = b" " * ok(nvrtc.nvrtcGetPTXSize(program))
    ok(nvrtc.nvrtcGetPTX(program, ptx))
    ok(nvrtc.nvrtcDestroyProgram(program))
    return ptx


class Array:
    """float32 on the device."""

    def __init__(self, values):
        self.count = values.size
        self.pointer = ok(driver.cuMemAlloc(4 * self.count))
        host = np.ascontiguousarray(values, np.float32)
        ok(driver.cuMemcpyHtoD(self.pointer, host.ctypes.data, host.nbytes))

    def read(self):
        host = np.empty(self.count, np.float32)
        ok(driver.cuMemcpyDtoH(host.ctypes.data, self.pointer, host.nbytes))
        return host


class Address(int):
    """Of something inside an array."""


class Parameter:
    def __init__(self, values):
        self.value, self.gradient = Array(values), Array(np.zeros(values.shape))
        self.first, self.second = Array(np.zeros(values.shape)), Array(np.zeros(values.shape))


class Batch:
    """Pinned host memory, its copy on the device, and the event that says that it has arrived."""

    def __init__(self):
        self.bytes = BATCH * (CONTEXT + 1)
        self.host = ok(driver.cuMemAllocHost(self.bytes))
        self.view = np.ctypeslib.as_array((ctypes.c_uint8 * self.bytes).from_address(int(self.host)))
        self.device = ok(driver.cuMemAlloc(self.bytes))
        self.arrived, self.used = ok(driver.cuEventCreate(2)), ok(driver.cuEventCreate(2))

    def fill(self, text, starts, stream):
        ok(driver.cuEventSynchronize(self.arrived))  # the last copy out of this memory has ended
        ok(driver.cuStreamWaitEvent(stream, self.used, 0))
        context = self.view[:BATCH * CONTEXT].reshape(BATCH, CONTEXT)
        for row, start in enumerate(starts):
            context[row] = text[start:start + CONTEXT]
        self.view[BATCH * CONTEXT:] = text[starts + CONTEXT]
        ok(driver.cuMemcpyHtoDAsync(self.device, self.host, self.bytes, stream))
        ok(driver.cuEventRecord(self.arrived, stream))


class Trainer:
    def __init__(self, text, classes, seed, rate):
        ok(driver.cuInit(0))
        device = ok(driver.cuDeviceGet(0))
        self.context = ok(driver.cuDevicePrimaryCtxRetain(device))
        ok(driver.cuCtxSetCurrent(self.context))
        self.module = ok(driver.cuModuleLoadData(compile_kernels(device)))
        self.functions = {}
        constant, _ = ok(driver.cuModuleGetGlobal(self.module, b"adam"))
        settings = np.array([rate, 0.9, 0.999, 1e-8], np.float32)
        ok(driver.cuMemcpyHtoD(constant, settings.ctypes.data, settings.nbytes))
        self.compute, self.copy = ok(driver.cuStreamCreate(1)), ok(driver.cuStreamCreate(1))
        self.text, self.classes, self.random = text, classes, np.random.default_rng(seed)
        wide = CONTEXT * WIDTH
        draw = lambda *shape, fan: self.random.standard_normal(shape) / np.sqrt(fan)  # noqa: E731
        self.table = Parameter(draw(classes, WIDTH, fan=1) * 0.5)
        self.w1, self.b1 = Parameter(draw(wide, HIDDEN, fan=wide)), Parameter(np.zeros(HIDDEN))
        self.w2, self.b2 = Parameter(draw(HIDDEN, classes, fan=HIDDEN)), Parameter(np.zeros(classes))
        self.parameters = [self.table, self.w1, self.b1, self.w2, self.b2]
        self.x, self.dx = Array(np.zeros((BATCH, wide))), Array(np.zeros((BATCH, wide)))
        self.h, self.dh = Array(np.zeros((BATCH, HIDDEN))), Array(np.zeros((BATCH, HIDDEN)))
        self.logits, self.loss = Array(np.zeros((BATCH, classes))), Array(np.zeros(BATCH))
        self.batches = [Batch(), Batch()]
        self.fill(self.batches[0])

    def fill(self, batch):
        starts = self.random.integers(0, len(self.text) - CONTEXT - 1, BATCH)
        batch.fill(self.text, starts, self.copy)

    def launch(self, name, grid, block, *arguments):
        if name not in self.functions:
            self.functions[name] = ok(driver.cuModuleGetFunction(self.module, name.encode()))
        values = tuple(int(a.pointer) if isinstance(a, Array) else a for a in arguments)
        types = tuple(ctypes.c_void_p if isinstance(a, (Array, Address)) else
                      ctypes.c_float if isinstance(a, float) else ctypes.c_int for a in arguments)
        ok(driver.cuLaunchKernel(self.functions[name], *grid, *block, 0, self.compute, (values, types), 0))

    def product(self, name, left, right, *rest):
        m, n, _ = rest[-3:]
        self.launch(name, (-(-n // TILE), -(-m // TILE), 1), (TILE, TILE, 1), left, right, *rest)

    def flat(self, name, n, *arguments):
        self.launch(name, (-(-n // 128), 1, 1), (128, 1, 1), *arguments)

    def step(self, number):
        batch, following = self.batches[number % 2], self.batches[(number + 1) % 2]
        self.fill(following)
        ok(driver.cuStreamWaitEvent(self.compute, batch.arrived, 0))
        tokens, nexts = Address(batch.device), Address(int(batch.device) + BATCH * CONTEXT)
        wide, positions, classes = CONTEXT * WIDTH, BATCH * CONTEXT, self.classes
        self.flat("embed", positions * WIDTH, tokens, self.table.value, self.x, positions)
        self.product("forward_hidden", self.x, self.w1.value, self.b1.value, self.h, BATCH, HIDDEN, wide)
        self.product("forward_output", self.h, self.w2.value, self.b2.value, self.logits, BATCH, classes, HIDDEN)
        self.launch("softmax_loss", (BATCH, 1, 1), (32, 1, 1), self.logits, nexts, self.loss, classes, 1.0 / BATCH)
        self.product("backward_weight", self.h, self.logits, self.w2.gradient, HIDDEN, classes, BATCH)
        self.flat("column_sums", classes, self.logits, self.b2.gradient, BATCH, classes)
        self.product("backward_input", self.logits, self.w2.value, self.dh, BATCH, HIDDEN, classes)
        self.flat("backward_tanh", BATCH * HIDDEN, self.dh, self.h, BATCH * HIDDEN)
        self.product("backward_weight", self.x, self.dh, self.w1.gradient, wide, HIDDEN, BATCH)
        self.flat("column_sums", HIDDEN, self.dh, self.b1.gradient, BATCH, HIDDEN)
        self.product("backward_input", self.dh, self.w1.value, self.dx, BATCH, wide, HIDDEN)
        self.flat("backward_embed", classes * WIDTH, tokens, self.dx, self.table.gradient, positions, classes * WIDTH)
        self.launch("count_step", (1, 1, 1), (1, 1, 1))
        for p in self.parameters:
            self.flat("update", p.value.count, p.value, p.gradient, p.first, p.second, p.value.count)
        ok(driver.cuEventRecord(batch.used, self.compute))
        ok(driver.cuStreamSynchronize(self.compute))
        return float(self.loss.read().sum(dtype=np.float64) / BATCH)

    def digest(self):
        content = hashlib.sha256()
        for p in self.parameters:
            for array in (p.value, p.first, p.second):
                content.update(array.read().tobytes())
        return content.hexdigest()[:32]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?", default="/usr/share/common-licenses/GPL-3")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.004)
    parser.add_argument("--pace-ms", type=float, default=0, help="wait at least this long from step to step")
    parser.add_argument("--log", help="write the log there instead of to standard output")
    options = parser.parse_args()
    data = np.fromfile(options.text, np.uint8)
    if len(data) <= 2 * CONTEXT:
        sys.exit(f"train.py: {options.text}: no text, or too short")
    letters, text = np.unique(data, return_inverse=True)
    text = text.astype(np.uint8)
    log = open(options.log, "w", buffering=1) if options.log else sys.stdout
    trainer = Trainer(text, len(letters), options.seed, options.rate)
    print(f"train.py: {len(text)} characters, {len(letters)} different; "
          f"{sum(p.value.count for p in trainer.parameters)} parameters; {options.steps} steps", file=log, flush=True)
    for number in range(options.steps):
        begin = time.monotonic()
        print(f"step {number + 1} loss {trainer.step(number):.9g}", file=log, flush=True)
        time.sleep(max(0.0, options.pace_ms / 1e3 - (time.monotonic() - begin)))
    print(f"digest {trainer.digest()}", file=log, flush=True)


if __name__ == "__main__":
    main()
