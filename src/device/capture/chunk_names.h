// What device memory holds, by the names of its chunks: computed at a snapshot, kept until the next
// one, so that it can tell what changed. 16 bytes for each 64 KiB.
//
// The names lie in scratch memory: they are no part of a snapshot and gone after a restore, the
// first snapshot of which therefore moves everything.
//
// Threads: none; one snapshot at a time.
// Owner: process-wide. Errors: a name that is not known, so that the chunk is moved.
#pragma once

#include "base/heap.h"
#include "device/base/memory.h"
#include "device/capture/hash.h"

namespace gpuckpt::device {

// Memory that counts. Pieces of it (what one name stands for) end at multiples of kChunkBytes.
struct Extent {
  uint64_t address, size;
  bool hashable;       // the kernel may read it, and it is worth it
  uint64_t first = 0;  // number of its first piece
};

// Everything of the device that a snapshot holds, by address, without overlaps: the 64 KiB blocks
// that hold anything alive, the application's own mappings, variables.
void list_extents(int device, Vector<Extent>* out);

// Consecutive pieces of one extent with one fate.
enum class Fate : uint8_t {
  kMove,   // changed, or not known
  kStill,  // to be moved as well, but as in the last round of pre-copy
  kZero,
  kSame,       // as in the table before
  kPrecopied,  // as it was sent before the stop
};
constexpr bool moves(Fate fate) { return fate == Fate::kMove || fate == Fate::kStill; }
struct Segment {
  uint64_t address, size;
  uint64_t name;  // number of the first piece's name; kNoName: without names
  Fate fate;
};
inline constexpr uint64_t kNoName = ~uint64_t{0};

class NameTable {
 public:
  NameTable() = default;
  ~NameTable() { clear(); }
  NameTable(const NameTable&) = delete;
  NameTable& operator=(const NameTable&) = delete;

  void clear();
  void forget();  // after a restore: the names are not mapped any more
  void take(NameTable* from);

  // Lists the extents and names what can be named (not without `hasher`). A sticky error of the
  // device comes back; everything else that fails leaves pieces without names.
  CUresult fill(int device, Hasher* hasher);

  // Tables whose names were made with another key count as null. `before` null: nothing is kSame;
  // `precopied` null: nothing is kStill or kPrecopied, which is what it has marked. Pieces to be
  // moved are cut at multiples of `cut`.
  bool compare(const NameTable* before, const NameTable* precopied, uint64_t cut,
               Vector<Segment>* out) const;
  // Pieces that were sent before the stop. False: no memory for that.
  bool mark(uint64_t number, uint64_t count);

  const Vector<Extent>& extents() const { return extents_; }
  const ChunkName* name(uint64_t number) const {
    return reinterpret_cast<const ChunkName*>(names_.data()) + number;
  }
  uint64_t bytes() const { return bytes_; }
  bool named() const { return named_; }

 private:
  class Finder;
  bool compare(Finder before, Finder precopied, const HostNames* zeros, uint64_t cut,
               Vector<Segment>* out) const;
  bool number();
  bool make_spans(Region* spans, uint32_t* count) const;

  Vector<Extent> extents_;
  Region names_;
  Region marks_;  // a byte for each piece; none: nothing is marked
  uint64_t pieces_ = 0, bytes_ = 0;
  bool named_ = false;
  HashKey key_{};  // by which they are named
};

}  // namespace gpuckpt::device
