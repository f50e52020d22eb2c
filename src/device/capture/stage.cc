// One snapshot of device memory: named chunk by chunk where it lies, compared with the last
// snapshot's names, and only what changed moves: into spare device memory first, as far as there is
// some, and from there to the sink after the application has resumed; the rest to the sink at once.
//
// Where the stage is too small for what changed, much of it goes before the moment of the snapshot:
// in rounds, each a short stop that fills the stage and a drain of chunks that have no place in the
// snapshot yet. At its moment those that are still the same are called by their names.
//
// The stage never takes memory that the application needs: it counts as free in cuMemGetInfo, and
// when a call of the application runs out of memory the stage is released (its copies move to host
// memory) before the call is made once more.
#include <sys/mman.h>

#include "base/heap.h"
#include "base/syscall.h"
#include "base/text/log.h"
#include "base/text/text.h"
#include "device/arena/vmm.h"
#include "device/base/each_device.h"
#include "device/base/lock_order.h"
#include "device/base/settings.h"
#include "device/capture/capture.h"
#include "device/capture/device_pump.h"
#include "device/capture/hash.h"
#include "device/hooks/hooks.h"
#include "gpuckpt/exit_codes.h"
#include "gpuckpt/wire.h"
#include "intercept/generated/real_driver.h"
#include "intercept/spec/wrapper_support.h"

namespace gpuckpt::device {
namespace {

// How long a drain waits for a capture to end before it continues during the capture (its calls are
// made in relaxed mode, which no capture forbids).
constexpr uint64_t kCapturePatienceUs = 10'000'000;

struct DeviceStage {
  CUdeviceptr memory = 0;  // the driver's allocation; 0: none, or given back
  uint64_t bytes = 0;
  uint64_t context = 0;       // name of the context everything of it lives in
  CUstream stream = nullptr;  // of the drain in progress
  bool context_gone = false;
  bool lost = false;                  // given back without a copy: the snapshot fails
  uint64_t host = 0, host_bytes = 0;  // where the copies lie once the memory was given back
  uint64_t host_from = 0;             // offset of its first byte
  Vector<Piece> pieces;               // staged
  size_t next = 0;                    // pieces before it are sent, or on their way
  Vector<Segment> still;              // what moves nothing: zero, as before, or precopied

  NameTable now, last;      // names of the snapshot in progress, and of the last that was published
  uint64_t last_moved = 0;  // bytes that changed up to that one
  NameTable precopied;      // of the last round of pre-copy, with marks at what was sent
};
struct Stage {
  Mutex lock{kStageLock};
  DeviceStage device[kMaxDevices];
  char last_id[64] = "";  // the snapshot that `last` describes
};
Stage& the_stage() {
  static Stage* instance;
  return made_once(&instance);
}

constexpr uint64_t rounded(uint64_t bytes) { return (bytes + kUnitBytes - 1) & ~(kUnitBytes - 1); }

// ---- before resume ----

// A segment as pieces that travel, as long as their copies fit into `room` from *offset on.
bool cut(const NameTable& names, const Segment& s, uint64_t room, uint64_t* offset,
         Vector<Piece>* out) {
  // Without names (variables, no kernel) segments are not cut yet.
  for (uint64_t at = s.address, end = s.address + s.size; at < end;) {
    uint64_t size = kPumpBytes - at % kPumpBytes;
    if (size > end - at) size = end - at;
    if (const uint64_t left = room - *offset; rounded(size) > left) {
      const uint64_t fits = (at + left) / kChunkBytes * kChunkBytes;
      if (fits <= at) return true;
      size = fits - at;
    }
    uint64_t number = s.name + (at / kChunkBytes - s.address / kChunkBytes);
    if (!out->push({at, size, *offset, s.name == kNoName ? nullptr : names.name(number)}))
      return false;
    *offset += rounded(size);
    at += size;
  }
  return true;
}

// The names of what the sink can call unchanged; null: there are none.
const NameTable* names_of_parent(const CaptureSink* sink, const DeviceStage& stage) {
  const bool known =
      sink->same && sink->parent && *sink->parent && equal(sink->parent, the_stage().last_id);
  return known ? &stage.last : nullptr;
}

// Divides the segments into what moves and what does not. Returns the bytes to be moved.
bool sort_out(const Vector<Segment>& segments, const NameTable& names, Vector<Piece>* moving,
              Vector<Segment>* still, uint64_t* bytes) {
  uint64_t offset = 0;
  *bytes = 0;
  for (const Segment& s : segments) {
    if (!moves(s.fate) && !still->push(s)) return false;
    if (!moves(s.fate)) continue;
    if (!cut(names, s, ~uint64_t{0}, &offset, moving)) return false;
    *bytes += s.size;
  }
  return true;
}

// Free device memory that a stage leaves to the program.
uint64_t reserve_of(uint64_t total) { return total / 32 > (256 << 20) ? total / 32 : 256 << 20; }

// Memory of the current context's device that is not in use, as far as a stage may have it.
uint64_t spare_room() {
  size_t free = 0, total = 0;
  const uint64_t cap = settings().stage;
  if (!cap || real().cuMemGetInfo_v2(&free, &total) != CUDA_SUCCESS) return 0;
  const uint64_t reserve = reserve_of(total);
  const uint64_t room = free > reserve ? free - reserve : 0;
  return room > cap ? cap : room;
}

// How many of the pieces fit into memory that is not in use.
size_t fitting(const Vector<Piece>& moves, uint64_t* bytes) {
  const uint64_t room = spare_room();
  size_t count = moves.size();
  while (count && moves[count - 1].offset + rounded(moves[count - 1].size) > room) --count;
  *bytes = count ? moves[count - 1].offset + rounded(moves[count - 1].size) : 0;
  return count;
}

// Copies as many of the pieces as fit into spare memory; how many that were.
size_t fill_stage(int device, uint64_t context, const Vector<Piece>& moves) {
  uint64_t bytes = 0;
  size_t count = fitting(moves, &bytes);
  DeviceStage& stage = the_stage().device[device];
  CUdeviceptr memory = 0;
  if (!count || !stage.pieces.append(moves.data(), count)) return 0;
  if (real().cuMemAlloc_v2(&memory, bytes) != CUDA_SUCCESS) {
    stage.pieces.clear();
    return 0;
  }
  CUstream stream = nullptr;
  CUresult result = real().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  // Neighbouring pieces are copied together: memory of gigabytes would be as many calls as it has
  // pieces.
  for (size_t i = 0, next; i < count && result == CUDA_SUCCESS; i = next) {
    uint64_t size = moves[i].size;
    for (next = i + 1; next < count && moves[next].address == moves[i].address + size &&
                       moves[next].offset == moves[i].offset + size;
         ++next)
      size += moves[next].size;
    result = real().cuMemcpyDtoDAsync_v2(memory + moves[i].offset, moves[i].address, size, stream);
  }
  if (result == CUDA_SUCCESS) result = real().cuStreamSynchronize(stream);
  if (stream) real().cuStreamDestroy_v2(stream);
  if (result != CUDA_SUCCESS) {
    real().cuMemFree_v2(memory);
    stage.pieces.clear();
    return 0;
  }
  MutexLock guard(the_stage().lock);
  stage.memory = memory;
  stage.context = context;
  stage.context_gone = stage.lost = false;
  stage.next = 0;
  __atomic_store_n(&stage.bytes, bytes, __ATOMIC_RELEASE);
  return count;
}

void reset(DeviceStage* stage) {
  if (stage->host) sys::munmap(stage->host, stage->host_bytes);
  stage->memory = 0;
  stage->host = 0;
  stage->stream = nullptr;
  stage->pieces.clear();
  stage->still.clear();
  stage->next = 0;
  stage->context = 0;
  stage->lost = false;
  __atomic_store_n(&stage->bytes, 0, __ATOMIC_RELEASE);
}

// The program's own mappings are open for reading meanwhile.
class Unlocked {
 public:
  explicit Unlocked(DeviceReport* report) : ok_(vmm_unlock(report)) {}
  ~Unlocked() { vmm_relock(); }
  explicit operator bool() const { return ok_; }

 private:
  const bool ok_;
};

// Drops what an earlier attempt left.
void discard() {
  for (DeviceStage& stage : the_stage().device) {
    MutexLock guard(the_stage().lock);
    if (stage.memory) {
      WithContext with(stage.context);
      if (with) real().cuMemFree_v2(stage.memory);
    }
    reset(&stage);
  }
}

bool cannot_copy(DeviceReport* report, int device, const Pump& pump) {
  if (pump.writer_gone()) return report->fail(kExitError, "the snapshot writer has gone");
  return report->fail(
      kExitError, "device %d: its memory at 0x%lx cannot be copied to the host (driver error %d)",
      device, pump.failed_at(), static_cast<int>(pump.result()));
}

// What does not fit the stage.
bool move_now(int device, CUcontext context, const Piece* pieces, size_t count, CaptureSink* sink,
              DeviceReport* report) {
  Pump pump(context, sink, wire::kSpaceDeviceBase + static_cast<uint64_t>(device));
  bool ok = pump.ok();
  for (size_t i = 0; ok && i < count;) {
    size_t batch = pump.batch(pieces + i, count - i);
    ok = pump.make_room() && pump.take(pieces + i, batch, 0);
    i += batch;
  }
  return (ok && pump.finish()) || cannot_copy(report, device, pump);
}

bool no_room_to_list(DeviceReport* report, int device) {
  return report->fail(kExitError, "no host memory to list what changed on device %d", device);
}

void name_memory(int device, CUcontext context, const CaptureSink* sink, DeviceStage* stage,
                 DeviceReport* report) {
  Hasher hasher(context, sink->name_key);
  stage->now.fill(device, &hasher);
  report->hash_us = hasher.kernel_us();
}

bool stage_device(int device, CaptureSink* sink, DeviceReport* report) {
  DeviceStage& stage = the_stage().device[device];
  CUcontext context = any_context(device);
  name_memory(device, context, sink, &stage, report);
  report->allocations += device_memory(device) ? device_memory(device)->arena.count() : 0;
  report->device_bytes += stage.now.bytes();
  if (!stage.now.bytes()) return true;
  if (!context)
    return report->fail(kExitRefused, "device %d has memory in use but no context", device);
  Vector<Segment> segments;
  Vector<Piece> moves;
  uint64_t bytes = 0;
  if (!stage.now.compare(names_of_parent(sink, stage), sink->named ? &stage.precopied : nullptr,
                         kPumpBytes, &segments) ||
      !sort_out(segments, stage.now, &moves, &stage.still, &bytes))
    return no_room_to_list(report, device);
  size_t staged = 0;
  if (!moves.empty()) {
    WithContext with(context);
    staged = fill_stage(device, name_from(Kind::kContext, context), moves);
  }
  report->moved_bytes += bytes;
  stage.last_moved = bytes;
  for (const Segment& s : stage.still)
    if (s.fate == Fate::kPrecopied) stage.last_moved += s.size;
  for (size_t i = 0; i < staged; ++i) report->staged_bytes += moves[i].size;
  return staged == moves.size() ||
         move_now(device, context, moves.data() + staged, moves.size() - staged, sink, report);
}

// ---- memory is given back to the application ----

// Copies what is not sent yet to host memory.
bool rescue(DeviceStage* stage) {
  uint64_t begin =
      stage->next < stage->pieces.size() ? stage->pieces[stage->next].offset : stage->bytes;
  uint64_t left = stage->bytes - begin;
  if (!left) return true;
  long at = sys::mmap(own_address(left), left, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
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
  return true;
}

// Stage lock held. The device memory goes back to the driver, whatever becomes of the snapshot.
bool free_device_memory(DeviceStage* stage) {
  if (!stage->memory) return false;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  real().cuThreadExchangeStreamCaptureMode(&mode);
  WithContext with(stage->context);
  if (with) {
    if (stage->stream) real().cuStreamSynchronize(stage->stream);
    stage->lost = !rescue(stage);
    real().cuMemFree_v2(stage->memory);
  }
  real().cuThreadExchangeStreamCaptureMode(&mode);
  if (!with) return false;
  stage->memory = 0;
  log_line(stage->lost ? LogLevel::kWarn : LogLevel::kInfo,
           "the stage gave %lu bytes of device memory back to the program%s",
           static_cast<unsigned long>(stage->bytes),
           stage->lost ? "; they could not be kept, so the snapshot fails" : "");
  return true;
}

// ---- after resume ----

bool send_still(int device, CaptureSink* sink) {
  const uint64_t space = wire::kSpaceDeviceBase + static_cast<uint64_t>(device);
  const DeviceStage& stage = the_stage().device[device];
  for (const Segment& s : stage.still) {
    const bool sent = s.fate == Fate::kZero ? sink->zero(sink, space, s.address, s.size)
                      : s.fate == Fate::kSame
                          ? sink->same(sink, space, s.address, s.size)
                          : sink->named(sink, space, s.address, s.size, stage.now.name(s.name));
    if (!sent) return false;
  }
  return true;
}

// Not faster than the settings say, and not while a stream is being captured.
class Throttle {
 public:
  Throttle() : rate_(settings().drain_rate), start_(sys::now_us()) {}
  void before(uint64_t bytes) {
    uint64_t since = sys::now_us();
    while (__atomic_load_n(&captures_active, __ATOMIC_RELAXED) &&
           sys::now_us() - since < kCapturePatienceUs)
      sys::sleep_us(2000);
    if (!rate_) return;
    uint64_t due = start_ + static_cast<uint64_t>(static_cast<double>(sent_) * 1e6 /
                                                  static_cast<double>(rate_));
    uint64_t now = sys::now_us();
    if (due > now) sys::sleep_us(due - now);
    sent_ += bytes;
  }

 private:
  uint64_t rate_, start_, sent_ = 0;
};

// Puts the next batch into the pump, or into *host if the stage's memory was given back to the
// application. `count` is 0 at the end. Returns false if the copy is lost or cannot be started.
bool next_batch(DeviceStage* stage, Pump* pump, const Piece** first, size_t* count,
                const uint8_t** host) {
  MutexLock guard(the_stage().lock);
  *host = nullptr;
  *first = stage->pieces.data() + stage->next;
  size_t left = stage->pieces.size() - stage->next;
  *count = left ? pump->batch(*first, left) : 0;
  if (!left) return true;
  if (stage->lost) return false;
  stage->next += *count;
  if (stage->memory) return pump->take(*first, *count, stage->memory);
  *host = reinterpret_cast<const uint8_t*>(stage->host - stage->host_from);  // + offset
  return true;
}

bool send_staged(DeviceStage* stage, Pump* pump) {
  Throttle throttle;
  for (;;) {
    if (!pump->make_room()) return false;  // waits for the writer: without the lock
    throttle.before(kPumpBytes);
    const Piece* first;
    size_t count;
    const uint8_t* host;
    if (!next_batch(stage, pump, &first, &count, &host)) return false;
    if (!count) return pump->finish();
    for (size_t i = 0; host && i < count; ++i)
      if (!pump->send_host(first[i], host + first[i].offset)) return false;
  }
}

bool drain_device(int device, uint64_t base, CaptureSink* sink, DeviceReport* report) {
  Stage& all = the_stage();
  DeviceStage& stage = all.device[device];
  if (!send_still(device, sink)) return report->fail(kExitError, "the snapshot writer has gone");
  if (stage.pieces.empty()) return true;
  Leave leave{&all.lock, &stage.context_gone};
  CUcontext context =
      stage.context_gone ? nullptr : real_of<CUcontext>(Kind::kContext, stage.context);
  Pump pump(context, sink, base + static_cast<uint64_t>(device), &leave);
  {
    MutexLock guard(all.lock);
    stage.stream = pump.stream();
  }
  // A context that was destroyed before the drain reached it has left its copies in host memory.
  bool ok = (pump.ok() || stage.context_gone || !stage.memory) && send_staged(&stage, &pump);
  bool lost = stage.lost;
  {
    MutexLock guard(all.lock);
    stage.stream = nullptr;
    if (stage.memory) {
      WithContext with(stage.context);
      if (with) real().cuMemFree_v2(stage.memory);
    }
    reset(&stage);
  }
  if (!ok && lost)
    return report->fail(
        kExitError,
        "device %d: the program needed the memory of the stage, and its copies found no "
        "room in host memory",
        device);
  return ok || cannot_copy(report, device, pump);
}

// The devices are drained one after the other, because the writer is slower than any device's link.
bool drain_all(uint64_t base, CaptureSink* sink, DeviceReport* report) {
  gate_bypass_this_thread();
  report->code = kExitOk;
  for (int device = 0; device < kMaxDevices; ++device) {
    if (drain_device(device, base, sink, report)) continue;
    discard();
    return false;
  }
  return true;
}

// ---- pre-copy: before the stop ----

// More rounds than that are not worth their stops.
constexpr uint64_t kMostRounds = 32;

struct Round {
  CaptureSink* sink;
  bool staged[kMaxDevices] = {};
};

// Whether more is to be expected of some device than a stage would hold, found out without stopping
// a thread: as if the devices were this program's alone. After a snapshot up to twice as much is
// expected as moved at the last one.
bool may_overflow(const CaptureSink* sink) {
  if (!settings().precopy || !settings().stage) return false;
  int devices = 0;
  if (real().cuDeviceGetCount(&devices) != CUDA_SUCCESS) return false;
  for (int device = 0; device < devices && device < kMaxDevices; ++device) {
    const DeviceStage& stage = the_stage().device[device];
    Vector<Extent> extents;
    list_extents(device, &extents);
    uint64_t bytes = 0;
    for (const Extent& e : extents) bytes += e.size;
    const bool known = names_of_parent(sink, stage);
    const uint64_t expected = known && 2 * stage.last_moved < bytes ? 2 * stage.last_moved : bytes;
    size_t total = 0;
    if (!expected || real().cuDeviceTotalMem_v2(&total, device) != CUDA_SUCCESS) continue;
    if (expected > settings().stage || bytes + expected + reserve_of(total) > total) return true;
  }
  return false;
}

// Stages a part of what would not fit the stage at the snapshot: in later rounds only what did not
// change since the one before, for what changes will change again.
bool precopy_device(int device, Round* round, DeviceReport* report) {
  DeviceStage& stage = the_stage().device[device];
  CUcontext context = any_context(device);
  name_memory(device, context, round->sink, &stage, report);
  if (!context || !stage.now.named()) return true;
  Vector<Segment> segments;
  if (!stage.now.compare(names_of_parent(round->sink, stage), &stage.precopied, kPumpBytes,
                         &segments))
    return no_room_to_list(report, device);
  uint64_t left = 0;
  for (const Segment& s : segments)
    if (moves(s.fate)) left += s.size;
  WithContext with(context);
  const uint64_t room = spare_room();
  if (left <= room || left / kMostRounds > room) return true;
  const Fate chosen = stage.precopied.named() ? Fate::kStill : Fate::kMove;
  Vector<Piece> pieces;
  uint64_t offset = 0;
  for (const Segment& s : segments)
    if (s.fate == chosen && s.name != kNoName && !cut(stage.now, s, room, &offset, &pieces))
      return no_room_to_list(report, device);
  const size_t staged = fill_stage(device, name_from(Kind::kContext, context), pieces);
  bool marked = true;
  for (size_t i = 0; i < staged && marked; ++i) {
    const auto number = static_cast<uint64_t>(pieces[i].names - stage.now.name(0));
    marked = stage.now.mark(number, chunks_in(pieces[i].address, pieces[i].size));
    report->staged_bytes += pieces[i].size;
  }
  for (const Segment& s : segments)
    if (s.fate == Fate::kPrecopied && marked)
      marked = stage.now.mark(s.name, chunks_in(s.address, s.size));
  round->staged[device] = staged > 0;
  return marked || no_room_to_list(report, device);
}

// The gate is closed.
bool stage_precopy(Round* round, DeviceReport* report) {
  discard();
  Unlocked unlocked(report);
  auto step = [](void* to, int device, DeviceReport* its) {
    return precopy_device(device, static_cast<Round*>(to), its);
  };
  return unlocked && each_device(step, round, report);
}

}  // namespace

bool free_stage_memory() {
  bool any = false;
  for (DeviceStage& stage : the_stage().device) {
    if (!__atomic_load_n(&stage.bytes, __ATOMIC_ACQUIRE)) continue;
    MutexLock guard(the_stage().lock);
    any |= free_device_memory(&stage);
  }
  return any;
}

void stage_leave_context(uint64_t context) {
  for (DeviceStage& stage : the_stage().device) {
    if (!__atomic_load_n(&stage.bytes, __ATOMIC_ACQUIRE)) continue;
    MutexLock guard(the_stage().lock);
    if (stage.context != context) continue;
    free_device_memory(&stage);
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
  Stage& all = the_stage();
  all.last_id[0] = 0;
  for (DeviceStage& stage : all.device) {
    stage.host = 0;
    reset(&stage);
    stage.now.forget();
    stage.last.forget();
    stage.precopied.forget();
  }
}

bool stage(CaptureSink* sink, DeviceReport* report) {
  gate_bypass_this_thread();
  report->code = kExitOk;
  report->device_bytes = report->moved_bytes = report->staged_bytes = 0;
  report->allocations = report->hash_us = 0;
  uint64_t start = sys::now_us();
  discard();
  GrowingText json;
  describe_device(&json);
  if (!sink->blob(sink, "device", json.c_str(), json.size()))
    return report->fail(kExitError, "the snapshot writer has gone");
  Unlocked unlocked(report);
  if (!unlocked) return false;
  auto step = [](void* to, int device, DeviceReport* its) {
    return stage_device(device, static_cast<CaptureSink*>(to), its);
  };
  if (!each_device(step, sink, report)) {
    discard();
    return false;
  }
  if (report->staged_bytes && report->moved_bytes > report->staged_bytes)
    log_line(LogLevel::kInfo,
             "%lu bytes of device memory did not fit the stage: copied before resume",
             static_cast<unsigned long>(report->moved_bytes - report->staged_bytes));
  report->stage_us = sys::now_us() - start;
  return true;
}

bool drain(CaptureSink* sink, DeviceReport* report) {
  return drain_all(wire::kSpaceDeviceBase, sink, report);
}

bool precopy(CaptureSink* sink, uint64_t gate_ms, uint64_t deadline_ms, DeviceReport* report) {
  gate_bypass_this_thread();
  for (DeviceStage& stage : the_stage().device) stage.precopied.clear();
  report->precopy_bytes = report->precopy_rounds = report->precopy_stop_us = 0;
  if (!sink->sealed || !sink->named || !sink->arrived || !may_overflow(sink)) return true;
  const uint64_t begin = sys::now_us() / 1000;
  const uint64_t patience_ms = deadline_ms > begin ? deadline_ms - begin : 0;
  while (report->precopy_rounds < kMostRounds) {
    Round round{sink};
    DeviceReport its = {};
    if (!freeze(gate_ms, sys::now_us() / 1000 + patience_ms, &its))
      return report->precopy_rounds || report->fail(its.code, "%s", its.text);
    const uint64_t closed = sys::now_us();
    const bool ok = stage_precopy(&round, &its);
    gate_open();
    const uint64_t stop = sys::now_us() - closed + its.gate_us;
    if (stop > report->precopy_stop_us) report->precopy_stop_us = stop;
    if (!ok) return report->fail(its.code, "%s", its.text);
    if (!its.staged_bytes) break;
    report->precopy_bytes += its.staged_bytes;
    ++report->precopy_rounds;
    if (!drain_all(wire::kSpacePrecopyBase, sink, &its))
      return report->fail(its.code, "%s", its.text);
    if (!sink->arrived(sink)) return report->fail(kExitError, "the snapshot writer has gone");
    for (int device = 0; device < kMaxDevices; ++device) {
      DeviceStage& stage = the_stage().device[device];
      if (round.staged[device]) stage.precopied.take(&stage.now);
    }
  }
  if (report->precopy_rounds)
    log_line(LogLevel::kInfo,
             "%lu bytes of device memory were copied before the stop, in %lu rounds",
             static_cast<unsigned long>(report->precopy_bytes),
             static_cast<unsigned long>(report->precopy_rounds));
  return true;
}

void commit_attempt(const char* id) {
  Stage& all = the_stage();
  for (DeviceStage& stage : all.device) stage.last.take(&stage.now);
  copy(all.last_id, sizeof all.last_id, id);
  abort_attempt();
}

void abort_attempt() {
  for (DeviceStage& stage : the_stage().device) {
    stage.now.clear();
    stage.precopied.clear();
  }
}

}  // namespace gpuckpt::device

// Called by the wrappers (intercept/spec/wrapper_support.h), inside the gate.
bool gpuckpt::give_memory_back() { return device::free_stage_memory() | device::Hasher::unload(); }
