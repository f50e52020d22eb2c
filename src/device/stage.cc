// Where captured device memory goes: into spare device memory first, as far as there is some, and
// from there to the sink after the application goes on; the rest to the sink at once.
#include <stdlib.h>
#include <sys/mman.h>

#include "common/log.h"
#include "common/syscall.h"
#include "common/text.h"
#include "device/capture.h"
#include "device/vmm.h"
#include "gpuckpt/exit_codes.h"
#include "gpuckpt/wire.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt::device {
namespace {

constexpr uint64_t kZeroBlock = 64 << 10;  // what is sent as zero is at least this and so aligned
constexpr uint64_t kPiece = 4 << 20;       // what travels over PCIe in one copy

bool is_zero(const uint8_t* bytes, uint64_t size) {
  uint64_t i = 0;
  for (; i + 64 <= size; i += 64) {
    uint64_t w[8];
    __builtin_memcpy(w, bytes + i, 64);
    if (w[0] | w[1] | w[2] | w[3] | w[4] | w[5] | w[6] | w[7]) return false;
  }
  uint8_t any = 0;
  for (; i < size; ++i) any |= bytes[i];
  return !any;
}

// Sends bytes of device memory, cut where zero blocks begin and end.
bool send(CaptureSink* sink, int device, uint64_t address, const uint8_t* bytes, uint64_t size) {
  uint64_t space = wire::kSpaceDeviceBase + static_cast<uint64_t>(device);
  for (uint64_t at = 0; at < size;) {
    bool zero = false;
    uint64_t end = at;
    while (end < size) {
      uint64_t block = kZeroBlock - (address + end) % kZeroBlock;
      if (block > size - end) block = size - end;
      bool block_zero = is_zero(bytes + end, block);
      if (end == at) zero = block_zero;
      if (block_zero != zero) break;
      end += block;
    }
    bool sent = zero ? sink->zero(sink, space, address + at, end - at)
                     : sink->data(sink, space, address + at, bytes + at, end - at);
    if (!sent) return false;
    at = end;
  }
  return true;
}

struct Extent {
  uint64_t address, size;
};

// Appends, cut into pieces that end at multiples of kPiece. Neighbours join only inside one chunk:
// copies do not span allocations.
void add_extent(Vector<Extent>* out, uint64_t address, uint64_t size, bool joins = false) {
  while (size) {
    uint64_t piece = kPiece - address % kPiece;
    if (piece > size) piece = size;
    Extent* last = out->empty() || !joins ? nullptr : &(*out)[out->size() - 1];
    if (last && last->address + last->size == address && address % kPiece)
      last->size += piece;
    else
      out->push({address, piece});
    address += piece;
    size -= piece;
  }
}

// What of the device's memory counts: the 64 KiB blocks that hold anything alive, and variables.
void list_extents(int device, Vector<Extent>* out) {
  if (DeviceMemory* memory = device_memory(device)) {
    Guard guard(memory->lock);
    for (Chunk* c = memory->arena.first_chunk(); c; c = memory->arena.next_chunk(c)) {
      if (!c->block) {
        add_extent(out, c->begin, c->size);
        continue;
      }
      for (uint64_t at = c->begin; at < c->begin + c->size; at += kZeroBlock)
        if (memory->arena.occupied(at, kZeroBlock)) add_extent(out, at, kZeroBlock, at > c->begin);
    }
  }
  Vector<VmmExtent> mapped;
  vmm_extents(device, &mapped);
  for (const VmmExtent& e : mapped) add_extent(out, e.address, e.size);
  Guard guard(registry().lock);
  for (Object* o = registry().first(); o; o = o->next) {
    if (o->dead || (o->type != ObjectType::kModule && o->type != ObjectType::kLibrary)) continue;
    auto& globals = o->type == ObjectType::kModule ? static_cast<ModuleObject*>(o)->globals
                                                   : static_cast<LibraryObject*>(o)->globals;
    for (Global& g : globals) {
      ContextObject* context = registry().context(g.context);
      if (context && context->alive && context->device == device)
        add_extent(out, g.address, g.size);
    }
  }
}

// Copies in spare device memory, to be sent after the application goes on.
struct Staged {
  uint64_t address, size, offset;
};
struct DeviceStage {
  CUdeviceptr memory = 0;  // the driver's allocation; 0: none, or given back
  uint64_t bytes = 0;
  uint64_t context = 0;       // name of the context everything of it lives in
  CUstream stream = nullptr;  // of the drain in progress
  bool context_gone = false;
  uint64_t host = 0, host_bytes = 0;  // where the copies lie once the memory was given back
  uint64_t host_from = 0;             // offset of its first byte
  Vector<Staged> pieces;
  size_t next = 0;  // pieces before it are sent, or on their way
};
struct Stage {
  Lock lock;
  DeviceStage device[kMaxDevices];
};
Stage& the_stage() {
  static Stage* instance;
  Stage* seen = __atomic_load_n(&instance, __ATOMIC_ACQUIRE);
  if (seen) return *seen;
  Stage* fresh = make<Stage>();
  if (__atomic_compare_exchange_n(&instance, &seen, fresh, false, __ATOMIC_ACQ_REL,
                                  __ATOMIC_ACQUIRE))
    return *fresh;
  destroy(fresh);
  return *seen;
}

// Device memory to the sink through two pinned buffers: one fills while the other is sent. The
// buffers are plain memory of ours, so that they outlive a context which the application destroys
// meanwhile.
class Pump {
 public:
  Pump(CUcontext context, CaptureSink* sink, int device)
      : with_(context), sink_(sink), device_(device) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    real().cuThreadExchangeStreamCaptureMode(&mode);
    long at = sys::mmap(0, 2 * kPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    if (!with_ || sys::failed(at)) return;
    buffer_[0] = reinterpret_cast<uint8_t*>(at);
    buffer_[1] = buffer_[0] + kPiece;
    registered_ = real().cuMemHostRegister_v2(buffer_[0], 2 * kPiece,
                                              CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
    int low = 0, high = 0;
    real().cuCtxGetStreamPriorityRange(&low, &high);
    ok_ =
        real().cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, low) == CUDA_SUCCESS &&
        real().cuEventCreate(&done_[0], CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
        real().cuEventCreate(&done_[1], CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
  }
  ~Pump() {
    if (!context_gone_ && with_) {
      if (stream_) real().cuStreamSynchronize(stream_);
      for (CUevent event : done_)
        if (event) real().cuEventDestroy_v2(event);
      if (stream_) real().cuStreamDestroy_v2(stream_);
      if (registered_) real().cuMemHostUnregister(buffer_[0]);
    }
    if (buffer_[0]) sys::munmap(bits(buffer_[0]), 2 * kPiece);
  }
  Pump(const Pump&) = delete;
  Pump& operator=(const Pump&) = delete;

  bool ok() const { return ok_; }
  bool writer_gone() const { return writer_gone_; }
  CUresult result() const { return result_; }
  uint64_t failed_at() const { return failed_at_; }
  CUstream stream() const { return stream_; }
  void set_context_gone() { context_gone_ = true; }

  // Frees the next buffer (sends what is in it), then starts a copy of at most kPiece bytes into
  // it. `from` is where the bytes lie now (the memory itself, or its copy in the stage), `address`
  // what they are.
  bool make_room() { return flush(turn_); }
  bool copy(uint64_t address, uint64_t from, uint64_t size) {
    int i = turn_;
    result_ = real().cuMemcpyDtoHAsync_v2(buffer_[i], from, size, stream_);
    if (result_ == CUDA_SUCCESS) result_ = real().cuEventRecord(done_[i], stream_);
    failed_at_ = address;
    if (result_ != CUDA_SUCCESS) return false;
    full_[i] = {address, size};
    turn_ ^= 1;
    return true;
  }
  bool send_host(uint64_t address, uint64_t from, uint64_t size) {
    writer_gone_ |= !send(sink_, device_, address, reinterpret_cast<const uint8_t*>(from), size);
    return !writer_gone_;
  }
  bool finish() { return flush(turn_) && flush(turn_ ^ 1); }

 private:
  bool flush(int i) {
    if (!full_[i].size) return true;
    Extent extent = full_[i];
    full_[i] = {};
    // A context that goes takes its time to finish our copies first (stage_leave_context).
    if (!context_gone_) result_ = real().cuEventSynchronize(done_[i]);
    if (!context_gone_ && result_ != CUDA_SUCCESS) {
      failed_at_ = extent.address;
      Guard guard(the_stage().lock);
      context_gone_ = the_stage().device[device_].context_gone;
      if (!context_gone_) return false;
    }
    writer_gone_ |= !send(sink_, device_, extent.address, buffer_[i], extent.size);
    return !writer_gone_;
  }

  WithContext with_;
  CaptureSink* sink_;
  int device_;
  CUstream stream_ = nullptr;
  uint8_t* buffer_[2] = {};
  CUevent done_[2] = {};
  Extent full_[2] = {};
  int turn_ = 0;
  CUresult result_ = CUDA_SUCCESS;
  uint64_t failed_at_ = 0;
  bool ok_ = false, writer_gone_ = false, registered_ = false, context_gone_ = false;
};

// GPUCKPT_STAGE: off, or the most bytes to use.
uint64_t stage_cap() {
  const char* text = getenv("GPUCKPT_STAGE");
  if (!text || !*text) return ~uint64_t{0};
  if (equal(text, "off")) return 0;
  return scan_dec(&text);
}

// Copies as many of the extents as fit into spare memory; how many that were.
size_t fill_stage(int device, uint64_t context, const Vector<Extent>& extents) {
  size_t free = 0, total = 0;
  uint64_t cap = stage_cap();
  if (!cap || real().cuMemGetInfo_v2(&free, &total) != CUDA_SUCCESS) return 0;
  uint64_t reserve = total / 32 > (256 << 20) ? total / 32 : 256 << 20;
  uint64_t room = free > reserve ? free - reserve : 0;
  if (room > cap) room = cap;
  uint64_t bytes = 0;
  size_t count = 0;
  for (; count < extents.size(); ++count) {
    uint64_t size = (extents[count].size + kUnitBytes - 1) & ~(kUnitBytes - 1);
    if (bytes + size > room) break;
    bytes += size;
  }
  DeviceStage& stage = the_stage().device[device];
  CUdeviceptr memory = 0;
  if (!bytes || real().cuMemAlloc_v2(&memory, bytes) != CUDA_SUCCESS) return 0;
  CUstream stream = nullptr;
  CUresult result = real().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  uint64_t offset = 0;
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    const Extent& e = extents[i];
    result = real().cuMemcpyDtoDAsync_v2(memory + offset, e.address, e.size, stream);
    if (!stage.pieces.push({e.address, e.size, offset})) result = CUDA_ERROR_OUT_OF_MEMORY;
    offset += (e.size + kUnitBytes - 1) & ~(kUnitBytes - 1);
  }
  if (result == CUDA_SUCCESS) result = real().cuStreamSynchronize(stream);
  if (stream) real().cuStreamDestroy_v2(stream);
  if (result != CUDA_SUCCESS) {
    real().cuMemFree_v2(memory);
    stage.pieces.clear();
    return 0;
  }
  Guard guard(the_stage().lock);
  stage.memory = memory;
  stage.context = context;
  stage.context_gone = false;
  stage.next = 0;
  __atomic_store_n(&stage.bytes, bytes, __ATOMIC_RELEASE);
  return count;
}

// Stage lock held. What is not sent yet goes to host memory, the device memory back to the driver.
bool give_way(DeviceStage* stage) {
  if (!stage->memory) return false;
  WithContext with(stage->context);
  if (!with) return false;
  if (stage->stream) real().cuStreamSynchronize(stage->stream);
  uint64_t begin =
      stage->next < stage->pieces.size() ? stage->pieces[stage->next].offset : stage->bytes;
  uint64_t left = stage->bytes - begin;
  if (left) {
    long at = sys::mmap(0, left, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    if (sys::failed(at)) return false;
    // On a stream of its own: a plain copy would wait for the program's streams, which may wait for
    // us.
    CUstream stream = nullptr;
    bool ok = real().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
              real().cuMemcpyDtoHAsync_v2(reinterpret_cast<void*>(at), stage->memory + begin, left,
                                          stream) == CUDA_SUCCESS &&
              real().cuStreamSynchronize(stream) == CUDA_SUCCESS;
    if (stream) real().cuStreamDestroy_v2(stream);
    if (!ok) {
      sys::munmap(static_cast<uint64_t>(at), left);
      return false;
    }
    stage->host = static_cast<uint64_t>(at);
    stage->host_bytes = left;
    stage->host_from = begin;
  }
  real().cuMemFree_v2(stage->memory);
  stage->memory = 0;
  log_line(LogLevel::kInfo, "the stage gave %lu bytes of device memory back to the program",
           static_cast<unsigned long>(stage->bytes));
  return true;
}

void reset(DeviceStage* stage) {
  if (stage->host) sys::munmap(stage->host, stage->host_bytes);
  stage->memory = 0;
  stage->host = 0;
  stage->stream = nullptr;
  stage->pieces.clear();
  stage->next = 0;
  stage->context = 0;
  __atomic_store_n(&stage->bytes, 0, __ATOMIC_RELEASE);
}

// Drops what an earlier attempt left.
void discard() {
  for (DeviceStage& stage : the_stage().device) {
    Guard guard(the_stage().lock);
    if (stage.memory) {
      WithContext with(stage.context);
      if (with) real().cuMemFree_v2(stage.memory);
    }
    reset(&stage);
  }
}

bool cannot_copy(DeviceReport* report, int device, bool writer_gone, CUresult result = CUDA_SUCCESS,
                 uint64_t address = 0) {
  discard();
  if (writer_gone) return fail(report, kExitError, "the snapshot writer has gone");
  return fail(report, kExitError,
              "device %d: its memory at 0x%lx cannot be copied to the host (driver error %d)",
              device, address, static_cast<int>(result));
}

bool drain_device(int device, CaptureSink* sink, DeviceReport* report) {
  DeviceStage& stage = the_stage().device[device];
  Pump pump(real_of<CUcontext>(Kind::kContext, stage.context), sink, device);
  bool ok = pump.ok();
  {
    Guard guard(the_stage().lock);
    stage.stream = pump.stream();
  }
  while (ok) {
    if (!(ok = pump.make_room())) break;  // waits for the writer: without the lock
    Staged piece;
    uint64_t host;
    {
      Guard guard(the_stage().lock);
      if (stage.context_gone) pump.set_context_gone();
      if (stage.next == stage.pieces.size()) break;
      piece = stage.pieces[stage.next++];
      host = stage.memory ? 0 : stage.host - stage.host_from;  // + offset: the piece
      if (!host) ok = pump.copy(piece.address, stage.memory + piece.offset, piece.size);
    }
    if (host) ok = pump.send_host(piece.address, host + piece.offset, piece.size);
  }
  ok = ok && pump.finish();
  {
    Guard guard(the_stage().lock);
    stage.stream = nullptr;
    if (stage.memory) {
      WithContext with(stage.context);
      if (with) real().cuMemFree_v2(stage.memory);
    }
    reset(&stage);
  }
  return ok || cannot_copy(report, device, pump.writer_gone(), pump.result(), pump.failed_at());
}

}  // namespace

bool stage_give_way() {
  bool any = false;
  for (DeviceStage& stage : the_stage().device) {
    if (!__atomic_load_n(&stage.bytes, __ATOMIC_ACQUIRE)) continue;
    Guard guard(the_stage().lock);
    any |= give_way(&stage);
  }
  return any;
}

void stage_leave_context(uint64_t context) {
  for (DeviceStage& stage : the_stage().device) {
    if (!__atomic_load_n(&stage.bytes, __ATOMIC_ACQUIRE)) continue;
    Guard guard(the_stage().lock);
    if (stage.context != context) continue;
    give_way(&stage);
    if (stage.stream) real().cuStreamSynchronize(stage.stream);
    stage.context_gone = true;
  }
}

uint64_t stage_bytes(int device) {
  if (device < 0 || device >= kMaxDevices) return 0;
  DeviceStage& stage = the_stage().device[device];
  uint64_t bytes = __atomic_load_n(&stage.bytes, __ATOMIC_ACQUIRE);
  return bytes && __atomic_load_n(&stage.memory, __ATOMIC_RELAXED) ? bytes : 0;
}

void stage_forget() {
  for (DeviceStage& stage : the_stage().device) {
    stage.host = 0;
    reset(&stage);
  }
}

bool stage(CaptureSink* sink, DeviceReport* report) {
  report->code = kExitOk;
  report->device_bytes = report->staged_bytes = report->allocations = 0;
  uint64_t start = sys::now_us();
  discard();
  Text json;
  describe_device(&json);
  if (!sink->blob(sink, "device", json.c_str(), json.size())) return cannot_copy(report, 0, true);
  vmm_unlock();
  struct Relock {
    ~Relock() { vmm_relock(); }
  } relock;
  for (int device = 0; device < machine_facts.devices; ++device) {
    Vector<Extent> extents;
    list_extents(device, &extents);
    report->allocations += device_memory(device) ? device_memory(device)->arena.count() : 0;
    if (extents.empty()) continue;
    CUcontext context = any_context(device);
    if (!context)
      return fail(report, kExitRefused, "device %d has memory in use but no context", device);
    size_t staged;
    {
      WithContext with(context);
      staged = fill_stage(device, name_from(Kind::kContext, context), extents);
    }
    for (size_t i = 0; i < extents.size(); ++i)
      (i < staged ? report->staged_bytes : report->device_bytes) += extents[i].size;
    if (staged == extents.size()) continue;
    Pump pump(context, sink, device);
    bool ok = pump.ok();
    for (size_t i = staged; ok && i < extents.size(); ++i)
      ok = pump.make_room() && pump.copy(extents[i].address, extents[i].address, extents[i].size);
    if (!ok || !pump.finish())
      return cannot_copy(report, device, pump.writer_gone(), pump.result(), pump.failed_at());
  }
  if (report->device_bytes && report->staged_bytes)
    log_line(LogLevel::kInfo,
             "%lu bytes of device memory did not fit the stage: copied before resume",
             static_cast<unsigned long>(report->device_bytes));
  report->device_bytes += report->staged_bytes;
  report->stage_us = sys::now_us() - start;
  return true;
}

bool drain(CaptureSink* sink, DeviceReport* report) {
  gate_bypass_this_thread();
  report->code = kExitOk;
  bool ok = true;
  for (int device = 0; device < kMaxDevices; ++device)
    if (__atomic_load_n(&the_stage().device[device].bytes, __ATOMIC_ACQUIRE))
      ok &= drain_device(device, sink, report);
  return ok;
}

}  // namespace gpuckpt::device
