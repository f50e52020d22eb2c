// Reading one published snapshot: blobs by name, bytes by (space, address). Ordinary C++; used by
// the command line and by the supervisor, never inside the application.
//
// Owner: the caller; it keeps the packs that it opened. Threads: any. Errors: a Status that names
// the file and the damage.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "store/status.h"

namespace gpuckpt::store {

// One stored piece of a space. Extents of a space are sorted, disjoint and non-empty; neighbours
// are merged as far as their kind (data or zero) is the same. Addresses that were not captured are
// in no extent.
struct Extent {
  uint64_t address;
  uint64_t length;
  bool zero;
};

class Names;

// The smallest stored piece of a space: equal names mean equal bytes in all snapshots of a store.
struct NamedExtent {
  uint64_t address;
  uint64_t length;
  bool zero;
  std::array<uint8_t, 16> name;  // zeros have none
};

class SnapshotReader {
 public:
  virtual ~SnapshotReader() = default;

  virtual const std::string& id() const = 0;
  // The manifest's description: JSON text (time, host, kernel, pid, command, tag, statistics,
  // sizes).
  virtual const std::string& meta() const = 0;

  virtual std::vector<uint64_t> spaces() const = 0;
  virtual std::vector<Extent> extents(uint64_t space) const = 0;

  // The same as `extents`, piece by piece with their names, for a comparison. Zero extents are not
  // cut.
  virtual std::vector<NamedExtent> named_extents(uint64_t space) const = 0;
  virtual const Names& names() const = 0;  // that the pieces are named by

  virtual std::vector<std::string> blobs() const = 0;
  // NotFound when the snapshot has no blob of that name.
  virtual Status blob(const std::string& name, std::vector<uint8_t>* out) const = 0;

  // Every byte handed out was checked against its chunk's name and its frame's checksum.
  // `read` fills `out` completely or fails; bytes outside every extent are an error.
  virtual Status read(uint64_t space, uint64_t address, std::span<uint8_t> out) const = 0;

  // Delivers every data extent of `space` piecewise, in no order, from `threads` threads at once
  // (0: all cores). `sink` may be called concurrently; it returns false to stop.
  using Sink = std::function<bool(uint64_t address, std::span<const uint8_t> bytes)>;
  // Returns the memory for the next bytes of the calling thread, so that they need not be copied:
  // exactly `length` bytes, or nothing. The sink is called with this memory when the bytes in it
  // have been checked; without that call its contents are undefined. Not asked for every piece.
  using Place = std::function<std::span<uint8_t>(uint64_t address, size_t length)>;
  virtual Status read_all(uint64_t space, unsigned threads, const Sink& sink,
                          const Place& place) const = 0;
  Status read_all(uint64_t space, unsigned threads, const Sink& sink) const {
    return read_all(space, threads, sink, nullptr);
  }

  // The same for those pieces (NamedExtent) alone that begin within `ranges`, which are sorted and
  // disjoint.
  struct Range {
    uint64_t start, end;
  };
  virtual Status read_parts(uint64_t space, const std::vector<Range>& ranges, unsigned threads,
                            const Sink& sink, const Place& place) const = 0;
};

}  // namespace gpuckpt::store
