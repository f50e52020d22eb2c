// What the files that a program has open for writing held at a snapshot, as sums of their blocks:
// so that a restore can tell a log that only grew from a file that was overwritten in place. A
// program whose database changed under it continues with memory that does not match, without any
// error.
//
// Sums are made by the writer, while the program runs on; what the program writes meanwhile must
// not be taken for what the file held before. Therefore the files are read twice, before the stop
// and after it. A file that was not touched between the stop and the second read (its time tells)
// is summed exactly; of one that grew in between, the part which both reads saw must be the same.
// Where it is not, the file is one that is overwritten in place, and no restore takes it once it
// changed again.
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

#include "restore/preflight/image.h"
#include "store/snapshot_reader.h"
#include "store/status.h"

namespace gpuckpt::restore {

// A file at the moment of a snapshot, up to the length that it had.
struct SummedFile {
  std::string path;
  uint64_t dev = 0, ino = 0, size = 0, mtime_ns = 0;
  uint64_t stride = 1;         // one block in `stride` is summed, and the last one
  std::vector<uint64_t> sums;  // of those blocks, but for those that are `mapped`
  // What the program mapped shared: it is in the snapshot, and put back.
  std::vector<std::pair<uint64_t, uint64_t>> mapped;
  bool in_place = false;  // it is known that its old part is overwritten

  std::vector<uint64_t> blocks() const;  // the numbers of those that are summed
};

nlohmann::json to_json(const SummedFile& file);
// False: it is none.
bool from_json(const nlohmann::json& j, SummedFile* out);

// The writer's side.
class FileSums {
 public:
  // Before the stop. What takes too long is left for later.
  void look(int64_t pid);
  // `parent`: of the snapshot before; a file that did not change since keeps its sums.
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

// What is wrong with the file as it is now; empty: nothing.
std::string changed_in_place(const SummedFile& file);

// The blob "files" of a snapshot; an object without anything when there is none.
nlohmann::json read_files_blob(const store::SnapshotReader& reader);
std::vector<SummedFile> summed_files(const nlohmann::json& files_blob);

}  // namespace gpuckpt::restore
