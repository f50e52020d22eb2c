#include "ptx/handlers/device_launch.h"

#include <algorithm>

namespace simgpu::ptx {

namespace {

constexpr uint32_t kInvalidValue = 1, kInvalidConfiguration = 9, kInvalidFunction = 98,
                   kTooMany = 69;    // of cudaError_t
constexpr uint64_t kTailStream = 3;  // cudaStreamTailLaunch
constexpr uint32_t kParameterLimit = 32764;

uint8_t* parameters(Launches::Work* w) { return reinterpret_cast<uint8_t*>(w + 1); }

uint64_t argument(Ctx& c, const CallSite& site, uint32_t lane, uint32_t k) {
  uint64_t v = 0;
  if (k < site.param_count)
    read_bytes(c, lane, kLocalWindow | (c.frame->local_base + site.params[k].offset), &v,
               site.params[k].bytes > 8 ? 8 : site.params[k].bytes);
  return v;
}
void dimensions(Ctx& c, const CallSite& site, uint32_t lane, uint32_t k, uint32_t out[3]) {
  out[0] = out[1] = out[2] = 0;
  if (k < site.param_count && site.params[k].bytes == 12)
    read_bytes(c, lane, kLocalWindow | (c.frame->local_base + site.params[k].offset), out, 12);
}

uint64_t failed(Ctx& c, uint32_t error) {
  c.grid->launches->error.store(error, std::memory_order_relaxed);
  return error;
}

// Fills in what is launched; 0 or an error.
uint32_t configure(Ctx& c, Launch* l, uint64_t function, const uint32_t grid[3],
                   const uint32_t block[3], uint64_t shared) {
  const Module& m = *c.module;
  const uint64_t offset = function - m.code_base, index = offset / 16 - 1;
  if (offset % 16 != 0 || offset == 0 || index >= m.functions.size() || !m.functions[index])
    return kInvalidFunction;
  uint32_t kernel = 0;
  while (kernel < m.kernels.size() && m.kernels[kernel]->function != m.functions[index]) ++kernel;
  if (kernel == m.kernels.size()) return kInvalidFunction;
  uint64_t threads = 1;
  for (unsigned d = 0; d < 3; ++d) {
    if (grid[d] == 0 || block[d] == 0) return kInvalidConfiguration;
    threads *= block[d];
  }
  if (threads > m.kernels[kernel]->info.max_threads || threads > 1024 ||
      shared + m.kernels[kernel]->static_shared > 227u << 10)
    return kInvalidConfiguration;
  *l = *c.grid->launch;
  l->kernel = kernel;
  memcpy(l->grid, grid, sizeof l->grid);
  memcpy(l->block, block, sizeof l->block);
  l->cluster[0] = l->cluster[1] = l->cluster[2] = 1;
  l->dynamic_shared_bytes = (uint32_t)shared;
  l->cooperative = false;
  return 0;
}

uint64_t with_parameters(Ctx& c, uint32_t bytes, Launches::Work** work) {
  const uint64_t at = bytes > kParameterLimit ? 0 : c.grid->launches->make(work, bytes);
  if (at == 0) failed(c, kTooMany);
  return at;
}

// (function, grid, block, shared memory) gives the address for parameters.
uint64_t parameter_buffer_2(Ctx& c, const CallSite& site, uint32_t lane) {
  uint32_t grid[3], block[3];
  dimensions(c, site, lane, 1, grid);
  dimensions(c, site, lane, 2, block);
  Launch l;
  if (const uint32_t error =
          configure(c, &l, argument(c, site, lane, 0), grid, block, argument(c, site, lane, 3))) {
    failed(c, error);
    return 0;
  }
  Launches::Work* w = nullptr;
  const uint64_t at = with_parameters(c, c.module->kernels[l.kernel]->info.param_bytes, &w);
  if (at != 0) w->launch = l;
  return at;
}
// (parameters, stream)
uint64_t launch_2(Ctx& c, const CallSite& site, uint32_t lane) {
  Launches::Work* w = c.grid->launches->find(argument(c, site, lane, 0));
  if (!w || w->given || !w->launch.module) return failed(c, kInvalidValue);
  c.grid->launches->give(w, c, argument(c, site, lane, 1));
  return 0;
}

// (alignment, bytes)
uint64_t parameter_buffer(Ctx& c, const CallSite& site, uint32_t lane) {
  Launches::Work* w = nullptr;
  const uint64_t bytes = argument(c, site, lane, 1);
  return with_parameters(c, bytes > kParameterLimit ? ~0u : (uint32_t)bytes, &w);
}
// (function, parameters, grid, block, shared memory, stream)
uint64_t launch(Ctx& c, const CallSite& site, uint32_t lane) {
  uint32_t grid[3], block[3];
  dimensions(c, site, lane, 2, grid);
  dimensions(c, site, lane, 3, block);
  Launch l;
  if (const uint32_t error =
          configure(c, &l, argument(c, site, lane, 0), grid, block, argument(c, site, lane, 4)))
    return failed(c, error);
  const uint32_t needed = c.module->kernels[l.kernel]->info.param_bytes;
  const uint64_t at = argument(c, site, lane, 1);
  Launches::Work* w = nullptr;
  if (at == 0 && needed == 0)
    with_parameters(c, 0, &w);
  else
    w = c.grid->launches->find(at);
  if (!w || w->given || w->param_bytes < needed) return failed(c, kInvalidValue);
  w->launch = l;
  c.grid->launches->give(w, c, argument(c, site, lane, 5));
  return 0;
}

uint64_t move(Ctx& c, const CallSite& site, uint32_t lane, Launches::Kind kind, uint32_t stream) {
  Launches::Work* w = nullptr;
  if (with_parameters(c, 0, &w) == 0) return kTooMany;
  w->kind = kind;
  w->to = argument(c, site, lane, 0);
  w->from = argument(c, site, lane, 1);
  w->bytes = argument(c, site, lane, 2);
  c.grid->launches->give(w, c, argument(c, site, lane, stream));
  return 0;
}
// (to, from, bytes, kind, stream)
uint64_t copy(Ctx& c, const CallSite& site, uint32_t lane) {
  return move(c, site, lane, Launches::Kind::kCopy, 4);
}
// (to, value, bytes, stream)
uint64_t fill(Ctx& c, const CallSite& site, uint32_t lane) {
  return move(c, site, lane, Launches::Kind::kFill, 3);
}

// (where to write the handle, flags): of streams and events. All streams of a block are one.
uint64_t create(Ctx& c, const CallSite& site, uint32_t lane) {
  const uint64_t handle = c.grid->launches->handle();
  return write_bytes(c, lane, argument(c, site, lane, 0), &handle, 8) ? 0
                                                                      : failed(c, kInvalidValue);
}
uint64_t done(Ctx&, const CallSite&, uint32_t) { return 0; }
uint64_t last_error(Ctx& c, const CallSite&, uint32_t) {
  return c.grid->launches->error.exchange(0);
}
uint64_t peek_error(Ctx& c, const CallSite&, uint32_t) { return c.grid->launches->error.load(); }

struct Row {
  const char* name;  // behind __cudaCDP2, and without _ptsz
  DeviceCall call;
};
constexpr Row kCalls[] = {{"GetParameterBufferV2", parameter_buffer_2},
                          {"LaunchDeviceV2", launch_2},
                          {"GetParameterBuffer", parameter_buffer},
                          {"LaunchDevice", launch},
                          {"MemcpyAsync", copy},
                          {"MemsetAsync", fill},
                          {"StreamCreateWithFlags", create},
                          {"StreamDestroy", done},
                          {"StreamWaitEvent", done},
                          {"EventCreateWithFlags", create},
                          {"EventRecord", done},
                          {"EventRecordWithFlags", done},
                          {"EventDestroy", done},
                          {"GetLastError", last_error},
                          {"PeekAtLastError", peek_error}};

}  // namespace

DeviceCall device_call(Text name) {
  const Text prefix("__cudaCDP2"), suffix("_ptsz");
  if (!name.starts(prefix)) return nullptr;
  Text rest(name.data + prefix.size, name.size - prefix.size);
  if (rest.size > suffix.size && Text(rest.data + rest.size - suffix.size, suffix.size) == suffix)
    rest.size -= suffix.size;
  for (const Row& r : kCalls)
    if (rest == r.name) return r.call;
  return nullptr;
}

Launches::~Launches() {
  for (Work* w : made_) drop(w);
  while (Work* w = next()) drop(w);
}

uint64_t Launches::make(Work** work, uint32_t param_bytes) {
  auto* w = static_cast<Work*>(calloc(1, sizeof(Work) + param_bytes));
  if (!w) return 0;
  new (w) Work();
  w->param_bytes = param_bytes;
  pthread_mutex_lock(&mutex_);
  const size_t index = made_.size();
  if (index < kMost) made_.push(w);
  pthread_mutex_unlock(&mutex_);
  if (index >= kMost) {
    drop(w);
    return 0;
  }
  *work = w;
  return kLaunchWindow | (uint64_t)(index + 1) << 16;
}

Launches::Work* Launches::find(uint64_t address) {
  const uint64_t index = (address & 0xffffffffffffull) >> 16;
  if (address >> 48 != kLaunchWindow >> 48 || index == 0) return nullptr;
  pthread_mutex_lock(&mutex_);
  Work* w = index <= made_.size() ? made_[index - 1] : nullptr;
  pthread_mutex_unlock(&mutex_);
  return w;
}

uint8_t* Launches::resolve(uint64_t address, uint32_t bytes) {
  Work* w = find(address);
  const auto at = (uint32_t)(address & 0xffff);
  return !w || at + bytes > w->param_bytes ? nullptr : parameters(w) + at;
}

void Launches::give(Work* w, const Ctx& c, uint64_t stream) {
  const uint32_t *at = c.block->ctaid, *size = c.grid->launch->grid;
  w->block = ((uint64_t)at[2] * size[1] + at[1]) * size[0] + at[0];
  w->tail = stream == kTailStream;
  w->launch.params = parameters(w);
  w->given = true;
  w->order = __atomic_fetch_add(&given_, 1, __ATOMIC_RELAXED);
}

void Launches::collect() {
  if (made_.empty()) return;
  auto later = [](const Work* a, const Work* b) {
    if (a->tail != b->tail) return a->tail;
    if (a->block != b->block) return a->block > b->block;
    return a->order > b->order;
  };
  std::sort(made_.begin(), made_.end(), later);
  for (Work* w : made_) {  // the first one last
    if (!w->given) {
      drop(w);
      continue;
    }
    w->next = waiting_;
    waiting_ = w;
  }
  made_.clear();
}

Launches::Work* Launches::next() {
  Work* w = waiting_;
  if (w) waiting_ = w->next;
  return w;
}

bool perform(Memory& memory, const Launches::Work& w) {
  for (uint64_t done = 0; done < w.bytes;) {
    Segment to{}, from{};
    const uint64_t a = w.to + done, b = w.from + done;
    if (!memory.find(a, &to) || a < to.begin || a >= to.end || !to.writable) return false;
    uint64_t n = std::min(w.bytes - done, to.end - a);
    if (w.kind == Launches::Kind::kCopy) {
      if (!memory.find(b, &from) || b < from.begin || b >= from.end) return false;
      n = std::min(n, from.end - b);
      memmove(to.host + (a - to.begin), from.host + (b - from.begin), n);
    } else {
      memset(to.host + (a - to.begin), (int)w.from, n);
    }
    done += n;
  }
  return true;
}

}  // namespace simgpu::ptx
