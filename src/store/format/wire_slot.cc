#include "store/format/wire_slot.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "store/format/member.h"
#include "store/format/space_map.h"

namespace gpuckpt::store {
namespace {

bool is_ahead(uint64_t space) { return (space & wire::kPlainSpace) >= wire::kSpacePrecopyBase; }

// A slot's header as it was at one moment: what the sender changes later has no effect.
struct Slot {
  uint64_t space = 0;
  uint32_t runs = 0;
  uint64_t bytes = 0;
  const wire::SlotHeader* header;
  const uint8_t* payload;
};

Status look(const uint8_t* at, bool with_runs, Slot* out) {
  const auto* header = reinterpret_cast<const wire::SlotHeader*>(at);
  const volatile wire::SlotHeader& once = *header;
  *out = {once.space, with_runs ? once.runs : 0, once.payload_bytes, header,
          at + wire::kSlotHeaderBytes};
  if (out->bytes > wire::kSlotPayloadBytes || out->runs > wire::kMaxRuns)
    return Status::Error("a slot of the ring claims more than it can hold");
  return Status::Ok();
}

// The length of a run's names; more than a slot when the run is invalid.
uint64_t names_bytes(uint64_t space, const wire::Run& run) {
  constexpr uint64_t kNever = ~0ull;
  if (run.length == 0 || run.length > wire::kSlotPayloadBytes * kLargeChunk ||
      run.address + run.length < run.address) {
    return kNever;
  }
  return sizeof(ChunkName) * chunks_in(run.address, run.length, chunk_unit(space));
}

std::vector<ChunkName> names_at(const uint8_t* bytes, uint64_t length) {
  std::vector<ChunkName> out(length / sizeof(ChunkName));
  if (!out.empty()) memcpy(out.data(), bytes, out.size() * sizeof(ChunkName));
  return out;
}

// Puts one run, whose payload begins at `*at`; advances `*at` behind it.
Status put_run(const Slot& slot, const wire::Run& run, uint64_t* at, SnapshotWriter& writer) {
  const uint8_t* payload = slot.payload + *at;
  const uint64_t left = slot.bytes - *at;
  if (is_ahead(slot.space) && run.flags != wire::kRunSealed)
    return Status::Error("a precopied run is of another kind than these are");
  switch (run.flags) {
    case wire::kRunZero:
      return writer.put_zero(slot.space, run.address, run.length);
    case wire::kRunSame:
      return writer.put_same(slot.space, run.address, run.length);
    case wire::kRunData:
      if (run.length > left) break;
      *at += run.length;
      return writer.put(slot.space, run.address, {payload, run.length});
    case wire::kRunEarly:
      if (run.length > left) break;
      if ((slot.space & wire::kPlainSpace) != wire::kSpaceHost)
        return Status::Error("bytes were sent early of a space that has no such");
      *at += run.length;
      return writer.put_early(slot.space, run.address, {payload, run.length});
    case wire::kRunNamed:
    case wire::kRunSealed: {
      const uint64_t names = names_bytes(slot.space, run);
      if (names > left) break;
      if (run.flags == wire::kRunNamed) {
        *at += names;
        return writer.put_named(slot.space, run.address, run.length, names_at(payload, names));
      }
      const uint64_t before = wire::padded_names(names);
      if (before > left || run.length > left - before) break;
      *at += before + run.length;
      const std::span bytes(payload + before, run.length);
      return is_ahead(slot.space)
                 ? writer.put_ahead(slot.space, run.address, bytes, names_at(payload, names))
                 : writer.put(slot.space, run.address, bytes, names_at(payload, names));
    }
    default:
      return Status::Error("a run of a slot is of a kind this writer does not know");
  }
  return Status::Error("the runs of a slot do not fit its payload");
}

}  // namespace

bool is_message(const wire::Msg& message, size_t received) {
  constexpr size_t kTextAt = offsetof(wire::Msg, text);
  return received >= kTextAt && received <= sizeof(message) && message.magic == wire::kMagic &&
         message.version == wire::kWireVersion && message.text_bytes <= received - kTextAt;
}

std::string message_text(const wire::Msg& message) {
  return {message.text, std::min<size_t>(message.text_bytes, sizeof(message.text))};
}

Status put_slot(const uint8_t* at, SnapshotWriter& writer, uint32_t member) {
  Slot slot;
  if (Status status = look(at, true, &slot); !status.ok()) return status;
  slot.space = member_space(slot.space & wire::kPlainSpace, member);
  uint64_t done = 0;
  for (uint32_t i = 0; i < slot.runs; ++i) {
    wire::Run run;
    memcpy(&run, &slot.header->run[i], sizeof(run));
    if (Status status = put_run(slot, run, &done, writer); !status.ok()) return status;
  }
  if (done == slot.bytes) return Status::Ok();
  return Status::Error("the runs of a slot do not cover its payload");
}

uint64_t covered_by_slot(const uint8_t* at) {
  Slot slot;
  uint64_t bytes = 0;
  if (!look(at, true, &slot).ok() || is_ahead(slot.space)) return 0;
  for (uint32_t i = 0; i < slot.runs; ++i) {
    const volatile wire::Run& run = slot.header->run[i];
    if (run.flags != wire::kRunEarly) bytes += run.length;
  }
  return bytes;
}

Status put_slot_blob(const uint8_t* at, const std::string& name, SnapshotWriter& writer,
                     std::vector<uint8_t>* copy) {
  Slot slot;
  if (Status status = look(at, false, &slot); !status.ok()) return status;
  // (Copied first: the other side may change the slot at any time.)
  const std::vector<uint8_t> bytes(slot.payload, slot.payload + slot.bytes);
  if (copy) copy->insert(copy->end(), bytes.begin(), bytes.end());
  return writer.append_blob(name, bytes);
}

}  // namespace gpuckpt::store
