// The file "tables": the tables of small packs, gathered, so that a writer need not open each pack
// to know which chunks there are. Derived: a writer that finds it absent, damaged or incomplete
// opens the packs.
//
// Owner: the caller. Threads: one at a time. Errors: of reading none (nothing is known then); a
// file that cannot be written is left out.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "store/format/pack.h"

namespace gpuckpt::store {

struct Paths;

class PackTables {
 public:
  // Whether it is small enough to be gathered: a longer one is read from its pack, which then is no
  // slower.
  static bool takes(const TableView& table) {
    constexpr size_t kMostBytes = 64 * 1024;
    return table.frames.size_bytes() + table.chunks.size_bytes() <= kMostBytes;
  }

  void load(Env*, const Paths&);
  // Removes the file, which is wrong about a pack.
  static void forget(Env*, const Paths&);

  // What the file says of a pack; null: nothing.
  const TableView* find(const PackId& id) const;
  // How many chunks all of them name.
  uint64_t chunks() const { return chunks_; }
  // A table that was read from a pack. It must stay until save().
  void add(const TableView& table) { added_.push_back(table); }
  // Writes the file anew, with those of `packs` that it had and what was added, if that is
  // worthwhile.
  void save(Env*, const Paths&, std::span<const PackId> packs) const;

 private:
  bool parse(const Paths&);
  std::vector<uint8_t> file_;
  uint64_t chunks_ = 0;
  std::map<PackId, TableView> known_;
  std::vector<TableView> added_;
};

}  // namespace gpuckpt::store
