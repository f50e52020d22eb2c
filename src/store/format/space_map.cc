#include "store/format/space_map.h"

#include <xxh_x86dispatch.h>

#include <algorithm>
#include <map>

#include "store/io/memory.h"

namespace gpuckpt::store {
namespace {

constexpr uint32_t kNone = 0xffffffff;
constexpr uint64_t kNever = ~0ull;
// Runs end before the last large unit of the address space, so that no sum below overflows.
constexpr uint64_t kLastEnd = ~0ull - 2 * kLargeChunk;

bool is_data(const Run& run) { return run.pack != kZeroPack && run.pack != kHolePack; }

uint64_t down(uint64_t address, uint64_t unit) { return address - address % unit; }

// Writes the difference between two lists of runs of one space.
class Difference {
 public:
  Difference(const std::vector<Run>& below, const std::vector<Run>& above,
             const std::vector<uint32_t>& number, uint64_t unit, std::vector<Run>* out)
      : below_(below), above_(above), number_(number), unit_(unit), out_(out) {}

  void run() {
    for (uint64_t at = 0;;) {
      while (i_ < below_.size() && below_[i_].end() <= at) ++i_;
      while (j_ < above_.size() && above_[j_].end() <= at) ++j_;
      uint64_t b = i_ < below_.size() ? std::max(at, below_[i_].address) : kNever;
      uint64_t a = j_ < above_.size() ? std::max(at, above_[j_].address) : kNever;
      if (a == kNever && b == kNever) return;
      at = down(std::min(a, b), unit_);
      at = stretch(at, a, b);
    }
  }

 private:
  // Returns the end of the whole units from `at` on that one run covers, or that no run touches.
  uint64_t covered(const std::vector<Run>& runs, size_t i, uint64_t at) const {
    return i < runs.size() && runs[i].address <= at ? (runs[i].end() - at) / unit_ : 0;
  }
  uint64_t empty(uint64_t next, uint64_t at) const {
    return next == kNever ? kNever : (down(next, unit_) - at) / unit_;
  }

  // Writes what differs in the units from `at` on that are alike, and returns where they end.
  uint64_t stretch(uint64_t at, uint64_t above_at, uint64_t below_at) {
    uint64_t a = covered(above_, j_, at), b = covered(below_, i_, at);
    uint64_t no_a = empty(above_at, at), no_b = empty(below_at, at);
    if (a && b) {
      uint64_t to = at + std::min(a, b) * unit_;
      Run mine = part_of(above_[j_], at, to, unit_);
      if (!same(part_of(below_[i_], at, to, unit_), mine)) add_run(out_, mine, unit_);
      return to;
    }
    if (a && no_b) {
      uint64_t to = at + std::min(a, no_b) * unit_;
      add_run(out_, part_of(above_[j_], at, to, unit_), unit_);
      return to;
    }
    if (b && no_a) {
      uint64_t to = at + std::min(b, no_a) * unit_;
      hole(at, to);
      return to;
    }
    one_unit(at);
    return at + unit_;
  }

  // Writes one unit that holds more or less than one whole chunk. It is taken as a whole, so that
  // no cut is made inside a chunk.
  void one_unit(uint64_t at) {
    std::vector<Run> mine = pieces(above_, j_, at), old = pieces(below_, i_, at);
    if (std::equal(mine.begin(), mine.end(), old.begin(), old.end(),
                   [this](const Run& m, const Run& o) { return same(o, m); })) {
      return;
    }
    uint64_t from = at;
    for (const Run& run : mine) {
      hole(from, run.address);
      add_run(out_, run, unit_);
      from = run.end();
    }
    hole(from, at + unit_);
  }
  std::vector<Run> pieces(const std::vector<Run>& runs, size_t i, uint64_t at) const {
    std::vector<Run> out;
    for (; i < runs.size() && runs[i].address < at + unit_; ++i) {
      uint64_t from = std::max(runs[i].address, at), to = std::min(runs[i].end(), at + unit_);
      out.push_back(part_of(runs[i], from, to, unit_));
    }
    return out;
  }
  bool same(const Run& old, const Run& mine) const {
    if (old.address != mine.address || old.length != mine.length) return false;
    if (!is_data(old) || !is_data(mine)) return old.pack == mine.pack;
    return number_[old.pack] == mine.pack && old.chunk == mine.chunk;
  }
  void hole(uint64_t from, uint64_t to) {
    if (from < to) add_run(out_, {from, to - from, kHolePack, 0, 0}, unit_);
  }

  const std::vector<Run>& below_;
  const std::vector<Run>& above_;
  // Number of a pack of `below` -> number of the same pack in `above`.
  const std::vector<uint32_t>& number_;
  uint64_t unit_;
  std::vector<Run>* out_;
  size_t i_ = 0, j_ = 0;
};

// Lays the runs of a layer over those of a map. False: they would cut a chunk.
bool overlay(const std::vector<Run>& base, const std::vector<Run>& over, uint64_t unit,
             std::vector<Run>* out) {
  size_t i = 0;
  uint64_t from = 0;
  auto clean = [&](const Run& run, uint64_t lo, uint64_t hi) {
    return !is_data(run) ||
           ((lo == run.address || lo % unit == 0) && (hi == run.end() || hi % unit == 0));
  };
  auto take = [&](uint64_t until) {
    for (; i < base.size() && base[i].address < until; ++i) {
      uint64_t lo = std::max(base[i].address, from), hi = std::min(base[i].end(), until);
      if (lo < hi) {
        if (!clean(base[i], lo, hi)) return false;
        add_run(out, part_of(base[i], lo, hi, unit), unit);
      }
      if (base[i].end() > until) break;
    }
    return true;
  };
  for (const Run& run : over) {
    if (!take(run.address)) return false;
    if (run.pack != kHolePack) add_run(out, run, unit);
    from = run.end();
    while (i < base.size() && base[i].end() <= from) ++i;
  }
  return take(kNever);
}

// --- bytes

void put_varint(std::vector<uint8_t>* out, uint64_t value) {
  for (; value >= 128; value >>= 7) out->push_back(static_cast<uint8_t>(value | 128));
  out->push_back(static_cast<uint8_t>(value));
}

void put_bytes(std::vector<uint8_t>* out, const void* bytes, size_t length) {
  const uint8_t* p = static_cast<const uint8_t*>(bytes);
  out->insert(out->end(), p, p + length);
}

class Cursor {
 public:
  explicit Cursor(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool take(void* out, uint64_t length) {
    if (length > left()) return false;
    if (length) memcpy(out, bytes_.data() + at_, length);
    at_ += length;
    return true;
  }
  bool varint(uint64_t* out) {
    *out = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) return false;
      uint8_t byte = bytes_[at_++];
      if (shift == 63 && byte > 1) return false;
      *out |= uint64_t{byte & 127u} << shift;
      if (byte < 128) return true;
    }
    return false;
  }
  uint64_t left() const { return bytes_.size() - at_; }

 private:
  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
};

uint64_t zigzag(int64_t value) {
  return static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63);
}
int64_t unzigzag(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

struct LayerHeader {
  uint32_t packs, spaces;
};
struct LayerSpaceHeader {
  uint64_t space, runs;
};

const char* decode_space(Cursor* cursor, uint32_t packs, SpaceMap* out) {
  const uint64_t unit = chunk_unit(out->space);
  uint64_t end = 0, value = 0;
  for (Run& run : out->runs) {
    if (!cursor->varint(&value) || value > kLastEnd - end) return "an address is wrong";
    run.address = end + value;
    end = run.address;
    if (!cursor->varint(&value) || value == 0 || value > kLastEnd - end) return "a length is wrong";
    run.length = value;
    end += value;
  }
  for (Run& run : out->runs) {
    if (!cursor->varint(&value) || value >= uint64_t{packs} + 2) return "a pack is wrong";
    run.pack = value == 0 ? kHolePack : value == 1 ? kZeroPack : static_cast<uint32_t>(value - 2);
  }
  uint64_t next = 0;
  for (Run& run : out->runs) {
    run.chunk = run.count = 0;
    if (!is_data(run)) continue;
    if (!cursor->varint(&value)) return "a chunk is missing";
    uint64_t chunk = next + static_cast<uint64_t>(unzigzag(value));
    if (run.length / unit > 0xfffffff0u || chunk > 0xffffffffu) return "a chunk is wrong";
    run.chunk = static_cast<uint32_t>(chunk);
    run.count = chunks_in(run.address, run.length, unit);
    next = chunk + run.count;
    if (next > 0xffffffffu) return "a chunk is wrong";
  }
  return nullptr;
}

}  // namespace

Run part_of(const Run& run, uint64_t from, uint64_t to, uint64_t unit) {
  if (!is_data(run)) return {from, to - from, run.pack, 0, 0};
  uint32_t skipped = static_cast<uint32_t>(from / unit - run.address / unit);
  return {from, to - from, run.pack, run.chunk + skipped, chunks_in(from, to - from, unit)};
}

void add_run(std::vector<Run>* runs, const Run& run, uint64_t unit) {
  if (!runs->empty()) {
    Run& last = runs->back();
    if (last.end() == run.address && last.pack == run.pack &&
        (!is_data(run) || (run.address % unit == 0 && last.chunk + last.count == run.chunk))) {
      last.length += run.length;
      last.count += run.count;
      return;
    }
  }
  runs->push_back(run);
}

SpaceDigest::SpaceDigest() : state_(with_memory(XXH3_createState())) {
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_));
}
SpaceDigest::~SpaceDigest() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }
void SpaceDigest::chunk(uint64_t address, uint64_t length, const ChunkName& name) {
  if (waiting_ == records_.size()) flush();
  records_[waiting_++] = {address, length, name};
}
void SpaceDigest::zeros(uint64_t address, uint64_t length) { chunk(address, length, ChunkName{}); }
void SpaceDigest::flush() {
  static_assert(sizeof(Record) == 32);
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), records_.data(),
                      waiting_ * sizeof(Record));
  waiting_ = 0;
}
ChunkName SpaceDigest::finish() {
  flush();
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(static_cast<XXH3_state_t*>(state_)));
  ChunkName out;
  memcpy(out.data(), canonical.digest, out.size());
  return out;
}

uint64_t Layer::entries() const {
  uint64_t sum = 0;
  for (const SpaceMap& space : spaces) sum += space.runs.size();
  return sum;
}

Layer difference(const PageMap& below, const PageMap& above) {
  std::map<PackId, uint32_t> known;
  for (uint32_t i = 0; i < above.packs.size(); ++i) known[above.packs[i].id] = i;
  std::vector<uint32_t> number(below.packs.size(), kNone);
  for (uint32_t i = 0; i < below.packs.size(); ++i) {
    auto it = known.find(below.packs[i].id);
    if (it != known.end()) number[i] = it->second;
  }
  Layer out;
  static const std::vector<Run> kNothing;
  size_t i = 0, j = 0;
  while (i < below.spaces.size() || j < above.spaces.size()) {
    uint64_t space = std::min(i < below.spaces.size() ? below.spaces[i].space : kNever,
                              j < above.spaces.size() ? above.spaces[j].space : kNever);
    bool in_below = i < below.spaces.size() && below.spaces[i].space == space;
    bool in_above = j < above.spaces.size() && above.spaces[j].space == space;
    SpaceMap map{space, {}, {}};
    Difference(in_below ? below.spaces[i].runs : kNothing,
               in_above ? above.spaces[j].runs : kNothing, number, chunk_unit(space), &map.runs)
        .run();
    if (!map.runs.empty()) out.spaces.push_back(std::move(map));
    i += in_below;
    j += in_above;
  }
  std::vector<uint32_t> used(above.packs.size(), kNone);
  for (SpaceMap& space : out.spaces) {
    for (Run& run : space.runs) {
      if (!is_data(run)) continue;
      uint32_t& n = used[run.pack];
      if (n == kNone) {
        n = static_cast<uint32_t>(out.packs.size());
        out.packs.push_back(above.packs[run.pack]);
      }
      run.pack = n;
    }
  }
  return out;
}

const char* apply(const Layer& layer, PageMap* map) {
  std::map<PackId, uint32_t> known;
  for (uint32_t i = 0; i < map->packs.size(); ++i) known[map->packs[i].id] = i;
  std::vector<uint32_t> number;
  for (const PackRef& ref : layer.packs) {
    auto [it, added] = known.try_emplace(ref.id, static_cast<uint32_t>(map->packs.size()));
    if (added) {
      map->packs.push_back(ref);
    } else if (memcmp(&map->packs[it->second], &ref, sizeof(ref)) != 0) {
      return "its layers contradict each other about a pack";
    }
    number.push_back(it->second);
  }
  for (const SpaceMap& space : layer.spaces) {
    std::vector<Run> over = space.runs;
    for (Run& run : over) {
      if (is_data(run)) run.pack = number[run.pack];
    }
    auto at = std::lower_bound(map->spaces.begin(), map->spaces.end(), space.space,
                               [](const SpaceMap& m, uint64_t wanted) { return m.space < wanted; });
    if (at == map->spaces.end() || at->space != space.space) {
      at = map->spaces.insert(at, {space.space, {}, {}});
    }
    std::vector<Run> runs;
    runs.reserve(at->runs.size() + 2 * over.size());  // each may cut one in two
    if (!overlay(at->runs, over, chunk_unit(space.space), &runs)) return "a layer cuts a chunk";
    at->runs = std::move(runs);
  }
  std::erase_if(map->spaces, [](const SpaceMap& space) { return space.runs.empty(); });
  return nullptr;
}

void forget_unused_packs(PageMap* map) {
  std::vector<uint32_t> number(map->packs.size(), kNone);
  std::vector<PackRef> packs;
  for (SpaceMap& space : map->spaces) {
    for (Run& run : space.runs) {
      if (!is_data(run)) continue;
      uint32_t& n = number[run.pack];
      if (n == kNone) {
        n = static_cast<uint32_t>(packs.size());
        packs.push_back(map->packs[run.pack]);
      }
      run.pack = n;
    }
  }
  map->packs = std::move(packs);
}

// Encodes column by column, because numbers of one kind resemble each other: zstd then needs a few
// bytes for a scattered page.
std::vector<uint8_t> encode_layer(const Layer& layer) {
  std::vector<uint8_t> out;
  LayerHeader header{static_cast<uint32_t>(layer.packs.size()),
                     static_cast<uint32_t>(layer.spaces.size())};
  put_bytes(&out, &header, sizeof(header));
  put_bytes(&out, layer.packs.data(), layer.packs.size() * sizeof(PackRef));
  for (const SpaceMap& space : layer.spaces) {
    LayerSpaceHeader sh{space.space, space.runs.size()};
    put_bytes(&out, &sh, sizeof(sh));
    uint64_t end = 0;
    for (const Run& run : space.runs) {
      put_varint(&out, run.address - end);
      put_varint(&out, run.length);
      end = run.end();
    }
    for (const Run& run : space.runs) {
      put_varint(&out, run.pack == kHolePack   ? 0
                       : run.pack == kZeroPack ? 1
                                               : uint64_t{run.pack} + 2);
    }
    int64_t next = 0;
    for (const Run& run : space.runs) {
      if (!is_data(run)) continue;
      put_varint(&out, zigzag(int64_t{run.chunk} - next));
      next = int64_t{run.chunk} + run.count;
    }
  }
  return out;
}

const char* decode_layer(std::span<const uint8_t> bytes, Layer* out) {
  Cursor cursor(bytes);
  LayerHeader header;
  if (!cursor.take(&header, sizeof(header))) return "a layer has no header";
  if (header.packs > cursor.left() / sizeof(PackRef)) return "a list of packs is cut off";
  out->packs.resize(header.packs);
  cursor.take(out->packs.data(), header.packs * sizeof(PackRef));
  if (header.spaces > cursor.left() / sizeof(LayerSpaceHeader)) return "a layer is cut off";
  out->spaces.clear();
  for (uint32_t i = 0; i < header.spaces; ++i) {
    LayerSpaceHeader sh;
    // A run takes at least three bytes.
    if (!cursor.take(&sh, sizeof(sh)) || sh.runs > cursor.left() / 3) return "a space is cut off";
    if (i > 0 && sh.space <= out->spaces.back().space) return "spaces are out of order";
    SpaceMap map{sh.space, {}, std::vector<Run>(sh.runs)};
    if (const char* why = decode_space(&cursor, header.packs, &map)) return why;
    out->spaces.push_back(std::move(map));
  }
  return cursor.left() == 0 ? nullptr : "bytes are left over";
}

}  // namespace gpuckpt::store
