// Sums of the blocks of files that a program has open for writing, as they were at a snapshot. They
// let a restore tell a log that only grew from a file that was overwritten in place: a program
// whose database changed under it continues with memory that does not match, without any error.
//
// The writer computes them while the program runs on, and what the program writes meanwhile must
// not count as the file's earlier contents. Therefore the files are read twice, before the stop and
// after it. A file that was not changed between the stop and the second read (its time shows that)
// is summed exactly; of one that grew in between, the part that both reads saw must be the same.
// Otherwise the file is one that is overwritten in place, and no restore accepts it once it changed
// again.
//
// Owner: the writer has the FileSums. Threads: one at a time. Errors: false, or a sentence; a file
// that cannot be read has no sums.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "restore/image/image.h"
#include "store/snapshot_reader.h"
#include "store/status.h"

namespace gpuckpt::restore {

// A file at the moment of a snapshot, up to its length then.
struct SummedFile {
  std::string path;
  uint64_t dev = 0, ino = 0, size = 0, mtime_ns = 0;
  uint64_t stride = 1;         // one block in `stride` is summed, and the last one
  std::vector<uint64_t> sums;  // of those blocks, except the `mapped` ones
  // The parts that the program mapped shared: they are in the snapshot, and restored.
  std::vector<std::pair<uint64_t, uint64_t>> mapped;
  bool in_place = false;  // its earlier part is known to be overwritten

  std::vector<uint64_t> blocks() const;  // the numbers of the summed blocks
};

nlohmann::json to_json(const SummedFile& file);
// Returns false if `j` is no such description.
bool from_json(const nlohmann::json& j, SummedFile* out);

// The writer's side.
class FileSums {
 public:
  // Called before the stop. Files that take too long are left for sum().
  void look(int64_t pid);
  // `parent`: the sums of the snapshot before; a file that did not change since keeps them.
  // `stands`: the program does not run again.
  std::vector<SummedFile> sum(const std::vector<Image>& images,
                              const std::vector<SummedFile>& parent, bool stands) const;

 private:
  struct Look {
    uint64_t size = 0;
    std::map<uint64_t, uint64_t> whole;  // by number of block
    uint64_t last = 0, last_bytes = 0, last_sum = 0;
  };
  void look_at(int fd, uint64_t size, Look* out);
  void sum(SummedFile* file, uint64_t stopped_ns, bool stands) const;
  std::map<std::pair<uint64_t, uint64_t>, Look> looks_;  // by device and inode
  uint64_t looked_at_ = 0;                               // bytes
};

// The reason why the file as it is now cannot be used; empty: it can.
std::string changed_in_place(const SummedFile& file);

// The blob "files" of a snapshot; an empty object when there is none.
nlohmann::json read_files_blob(const store::SnapshotReader& reader);
std::vector<SummedFile> summed_files(const nlohmann::json& files_blob);

}  // namespace gpuckpt::restore
