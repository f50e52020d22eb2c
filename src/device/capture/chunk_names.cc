#include "device/capture/chunk_names.h"

#include <algorithm>

#include "base/text/log.h"
#include "device/arena/arena_driver.h"
#include "device/arena/vmm.h"
#include "device/base/registry.h"

namespace gpuckpt::device {
namespace {

// Variables below this are moved without asking. Among them are all that may lie in a constant
// bank, which kernels do not read through the address that copies use.
constexpr uint64_t kMinVariable = kChunkBytes + 1;

void add_block_extents(const Arena& arena, const Chunk* chunk, Vector<Extent>* out) {
  bool joins = false;  // copies do not span chunks
  for (uint64_t at = chunk->begin; at < chunk->begin + chunk->size; at += kChunkBytes) {
    if (!arena.occupied(at, kChunkBytes)) {
      joins = false;
      continue;
    }
    if (joins)
      (*out)[out->size() - 1].size += kChunkBytes;
    else
      out->push({at, kChunkBytes, true});
    joins = true;
  }
}

void add_variables(int device, Vector<Extent>* out) {
  MutexLock guard(registry().lock);
  for (Object* o = registry().first(); o; o = o->next) {
    Vector<Global>* globals = o->dead ? nullptr : globals_of(o);
    if (!globals) continue;
    for (Global& g : *globals) {
      ContextObject* context = registry().context(g.context);
      if (g.size && !g.managed && context && context->alive && context->device == device)
        out->push({g.address, g.size, g.size >= kMinVariable});
    }
  }
}

// Sorted, and every address once: a variable may be known by two handles.
void tidy(Vector<Extent>* list) {
  std::sort(list->begin(), list->end(),
            [](const Extent& a, const Extent& b) { return a.address < b.address; });
  size_t kept = 0;
  uint64_t end = 0;
  for (Extent e : *list) {
    if (e.address < end) {
      uint64_t over = end - e.address < e.size ? end - e.address : e.size;
      e.address += over;
      e.size -= over;
    }
    if (!e.size) continue;
    end = e.address + e.size;
    (*list)[kept++] = e;
  }
  list->truncate(kept);
}

// The piece that begins at `at` within `e` (a beginning of a piece).
uint64_t piece_at(const Extent& e, uint64_t at) {
  uint64_t size = kChunkBytes - at % kChunkBytes;
  uint64_t left = e.address + e.size - at;
  return size < left ? size : left;
}
uint64_t pieces_of(const Extent& e) { return chunks_in(e.address, e.size); }
bool has_name(const Extent& e, uint64_t size) { return e.hashable && size >= kMinHashed; }

}  // namespace

void list_extents(int device, Vector<Extent>* out) {
  if (DeviceMemory* memory = device_memory(device)) {
    MutexLock guard(memory->lock);
    for (Chunk* c = memory->arena.first_chunk(); c; c = memory->arena.next_chunk(c)) {
      if (c->block)
        add_block_extents(memory->arena, c, out);
      else
        out->push({c->begin, c->size, true});
    }
  }
  Vector<VmmExtent> mapped;
  vmm_extents(device, &mapped);
  for (const VmmExtent& e : mapped) out->push({e.address, e.size, true});
  add_variables(device, out);
  tidy(out);
}

void NameTable::clear() {
  scratch_unmap(&names_);
  scratch_unmap(&marks_);
  forget();
}

void NameTable::forget() {
  names_ = marks_ = {};
  extents_.clear();
  pieces_ = bytes_ = 0;
  named_ = false;
}

void NameTable::take(NameTable* from) {
  clear();
  extents_.swap(from->extents_);
  names_ = from->names_;
  marks_ = from->marks_;
  pieces_ = from->pieces_;
  key_ = from->key_;
  bytes_ = from->bytes_;
  named_ = from->named_;
  from->forget();
}

bool NameTable::number() {
  for (Extent& e : extents_) {
    e.first = pieces_;
    pieces_ += pieces_of(e);
    bytes_ += e.size;
  }
  return pieces_ < 1ull << 32;
}

// Spans are of whole chunks, aligned; what is shorter is a span of its own.
bool NameTable::make_spans(Region* spans, uint32_t* count) const {
  uint64_t most = 0;
  for (const Extent& e : extents_)
    if (e.hashable) most += pieces_of(e) / kSpanChunks + 3;
  *count = 0;
  if (!most) return true;
  *spans = scratch_map(most * sizeof(HashSpan));
  if (!*spans) return false;
  auto* out = reinterpret_cast<HashSpan*>(spans->data());
  for (const Extent& e : extents_) {
    if (!e.hashable) continue;
    uint64_t number = e.first;
    for (uint64_t at = e.address, end = e.address + e.size; at < end;) {
      uint64_t size = piece_at(e, at), pieces = 1;
      while (at % kChunkBytes == 0 && pieces < kSpanChunks && at + size < end &&
             end - at - size >= kMinHashed) {
        size += piece_at(e, at + size);
        ++pieces;
      }
      if (size >= kMinHashed)
        out[(*count)++] = {at, static_cast<uint32_t>(size), static_cast<uint32_t>(number)};
      at += size;
      number += pieces;
    }
  }
  return true;
}

CUresult NameTable::fill(int device, Hasher* hasher) {
  clear();
  list_extents(device, &extents_);
  if (!number() || !hasher || !hasher->ready() || !pieces_) return CUDA_SUCCESS;
  Region spans;
  uint32_t count = 0;
  names_ = scratch_map(pieces_ * sizeof(ChunkName));
  CUresult result = CUDA_SUCCESS;
  if (names_ && make_spans(&spans, &count) && count) {
    result = hasher->hash(spans, count, names_);
    named_ = result == CUDA_SUCCESS;
    key_ = hasher->key();
  }
  scratch_unmap(&spans);
  if (named_) return CUDA_SUCCESS;
  scratch_unmap(&names_);
  if (result == CUDA_SUCCESS) return result;
  log_line(LogLevel::kWarn, "the device's memory could not be hashed (driver error %d)",
           static_cast<int>(result));
  return result;
}

bool NameTable::mark(uint64_t number, uint64_t count) {
  if (!marks_) marks_ = scratch_map(pieces_);
  if (!marks_) return false;
  __builtin_memset(reinterpret_cast<char*>(marks_.data()) + number, 1, count);
  return true;
}

// The names that the same pieces have in a table, asked for by growing addresses.
class NameTable::Finder {
 public:
  Finder(const NameTable* table, const HashKey& key)
      : table_(table && table->named_ && table->key_ == key ? table : nullptr) {}
  // Is that the piece's name there? `*marked`: it is, and that piece is marked.
  bool has(uint64_t address, uint64_t size, const ChunkName& name, bool* marked) {
    *marked = false;
    if (!table_) return false;
    const Vector<Extent>& extents = table_->extents_;
    while (at_ < extents.size() && extents[at_].address + extents[at_].size <= address) ++at_;
    if (at_ == extents.size()) return false;
    const Extent& e = extents[at_];
    const bool begins = e.address == address || (e.address < address && address % kChunkBytes == 0);
    if (!begins || piece_at(e, address) != size || !has_name(e, size)) return false;
    const uint64_t number = e.first + (address / kChunkBytes - e.address / kChunkBytes);
    if (*table_->name(number) != name) return false;
    *marked = table_->marks_ && reinterpret_cast<const char*>(table_->marks_.data())[number];
    return true;
  }

 private:
  const NameTable* table_;
  size_t at_ = 0;
};

bool NameTable::compare(const NameTable* before, const NameTable* precopied, uint64_t cut,
                        Vector<Segment>* out) const {
  HostNames* const zeros = named_ ? make<HostNames>(key_) : nullptr;
  if (named_ && !zeros) return false;
  const bool listed = compare(Finder(before, key_), Finder(precopied, key_), zeros, cut, out);
  if (zeros) destroy(zeros);
  return listed;
}

bool NameTable::compare(Finder old, Finder sent, const HostNames* zeros, uint64_t cut,
                        Vector<Segment>* out) const {
  for (const Extent& e : extents_) {
    uint64_t number = e.first;
    bool fresh = true;  // no segment of this extent yet
    for (uint64_t at = e.address, end = e.address + e.size; at < end; ++number) {
      uint64_t size = piece_at(e, at);
      bool named = named_ && has_name(e, size), marked = false;
      Fate fate = Fate::kMove;
      if (named && *name(number) == zeros->of_zeros(size))
        fate = Fate::kZero;
      else if (named && old.has(at, size, *name(number), &marked))
        fate = Fate::kSame;
      else if (named && sent.has(at, size, *name(number), &marked))
        fate = marked ? Fate::kPrecopied : Fate::kStill;
      Segment* last = fresh || out->empty() ? nullptr : &(*out)[out->size() - 1];
      bool joins = last && last->fate == fate && (last->name != kNoName) == named &&
                   (!moves(fate) || at % cut != 0);
      if (joins)
        last->size += size;
      else if (!out->push({at, size, named ? number : kNoName, fate}))
        return false;
      fresh = false;
      at += size;
    }
  }
  return true;
}

}  // namespace gpuckpt::device
