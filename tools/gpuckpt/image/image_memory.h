// The memory of a stored process, read by address without restoring it, for the stacks of
// `inspect`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpuckpt/process_format.h"
#include "gpuckpt/wire.h"
#include "image/process_records.h"
#include "store/snapshot_reader.h"

namespace gpuckpt::cli {

// A file (or the vdso) as the stored process had it in memory.
struct ImageModule {
  std::string path;   // as the process named it; "[vdso]"
  uint64_t base = 0;  // where its ELF header lies
  uint64_t end = 0;   // end of its last mapping
  // The file at `path` still has the size and time of modification that it had.
  bool file_there = false;
};

// One stored process's memory; not thread safe. `reader` and `records` must outlive it.
class ImageMemory {
 public:
  ImageMemory(const store::SnapshotReader& reader, const std::vector<Record>& records);

  // Fills `out` completely, or returns false: nothing was stored at these addresses, or the file
  // whose unchanged pages were mapped there is gone.
  bool read(uint64_t address, std::span<uint8_t> out) const;

  template <typename T>
  std::optional<T> get(uint64_t address) const {
    T value;
    if (!read(address, {reinterpret_cast<uint8_t*>(&value), sizeof(T)})) return std::nullopt;
    return value;
  }
  // A zero-terminated string of at most `limit` bytes.
  std::string text(uint64_t address, size_t limit = 256) const;

  // The module whose mappings hold `address`, else null.
  const ImageModule* module(uint64_t address) const;
  const std::vector<ImageModule>& modules() const { return modules_; }

 private:
  static constexpr uint64_t kPage = 4096;
  struct Mapping {
    process::Vma vma;
    std::string path;
    bool file_there;
  };
  bool load_page(uint64_t page, uint8_t* out) const;
  bool load_file_page(const Mapping& mapping, uint64_t page, uint8_t* out) const;
  void find_modules();

  const store::SnapshotReader& reader_;
  std::vector<store::Extent> extents_;
  std::vector<Mapping> mappings_;  // sorted by address
  std::vector<ImageModule> modules_;
  process::Vdso vdso_{};
  std::span<const uint8_t> vdso_bytes_;
  mutable std::map<uint64_t, std::vector<uint8_t>> pages_;  // empty: the page is known to be absent
};

}  // namespace gpuckpt::cli
