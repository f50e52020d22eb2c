// Where every byte of a snapshot lies: per space a sorted list of runs. On disk it is a stack of
// layers, each with the differences from those below. All but the newest are files that many
// snapshots share, so that the size of a snapshot's map grows with what changed, not with the
// memory.
//
// Everything here works in memory. Cuts are only made at multiples of a space's chunk unit, so no
// run ever begins or ends inside a chunk.
//
// Owner: the caller. Threads: one for each object. Errors: a text, null when there is none.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "store/format/format.h"

namespace gpuckpt::store {

// `count` whole chunks of pack `pack` (an index into a list of PackRef), from chunk number `chunk`
// on, make up the bytes [address, address + length). pack = kZeroPack: zeros; chunk and count are 0
// then. pack = kHolePack (in layers only): nothing is here, whatever the layers below say.
struct Run {
  uint64_t address;
  uint64_t length;
  uint32_t pack;
  uint32_t chunk;
  uint32_t count;
  uint64_t end() const { return address + length; }
};
inline constexpr uint32_t kZeroPack = 0xffffffff;
inline constexpr uint32_t kHolePack = 0xfffffffe;

struct SpaceMap {
  uint64_t space = 0;
  ChunkName digest{};
  std::vector<Run> runs;  // sorted by address, disjoint
};

struct PageMap {
  std::vector<PackRef> packs;
  std::vector<SpaceMap> spaces;  // sorted by space; blob i is in space kBlobSpace | i
};

// Chunks in [address, address + length).
inline uint32_t chunks_in(uint64_t address, uint64_t length, uint64_t unit) {
  return static_cast<uint32_t>((address + length - 1) / unit - address / unit + 1);
}
// How long the chunk at `address` is in a run that ends at `end`.
inline uint64_t chunk_length(uint64_t address, uint64_t end, uint64_t unit) {
  uint64_t whole = unit - address % unit;
  return end - address < whole ? end - address : whole;
}
// The part [from, to) of a run. Both must be its ends, or multiples of the unit.
Run part_of(const Run& run, uint64_t from, uint64_t to, uint64_t unit);
// Appends a run that lies behind all others, merged with the last one where possible.
void add_run(std::vector<Run>* runs, const Run& run, uint64_t unit);

// Digest of a space. It depends on the bytes and their addresses alone, not on packs or on how they
// are cut into runs. Names are added in the order of the chunks. (FORMAT.md, "Digest")
class SpaceDigest {
 public:
  SpaceDigest();
  ~SpaceDigest();
  SpaceDigest(const SpaceDigest&) = delete;
  SpaceDigest& operator=(const SpaceDigest&) = delete;
  void chunk(uint64_t address, uint64_t length, const ChunkName& name);
  void zeros(uint64_t address, uint64_t length);
  ChunkName finish();

 private:
  struct Record {
    uint64_t address, length;
    ChunkName name;
  };
  void flush();

  void* state_;
  // Hashed together, because a call for each costs more than its hash.
  std::array<Record, 128> records_;
  size_t waiting_ = 0;
};

// A layer: what differs. Its runs are sorted and disjoint like those of a map.
struct Layer {
  std::vector<PackRef> packs;
  std::vector<SpaceMap> spaces;  // digests unused
  uint64_t entries() const;
};

Layer difference(const PageMap& below, const PageMap& above);
// Null, or the reason why this layer does not fit that map.
const char* apply(const Layer& layer, PageMap* map);
// Drops packs that no run names.
void forget_unused_packs(PageMap* map);

std::vector<uint8_t> encode_layer(const Layer& layer);
// Null, or the reason why `bytes` are no layer. The result is within bounds in any case.
const char* decode_layer(std::span<const uint8_t> bytes, Layer* out);

}  // namespace gpuckpt::store
