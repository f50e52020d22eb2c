// The interface through which the store uses the operating system: every file operation is a
// virtual call, so that a test can fail the Nth one, fill the disk, or forget what was not synced.
// No other code of src/store opens a file.
//
// Owner: the caller of a store has the Env, a File its caller. Threads: an Env any; a File as said
// there. Errors: all calls return 0 or an errno value; `io_error` turns one into a Status with the
// remedy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "store/status.h"

namespace gpuckpt::store {

// An open file. Closes itself. `pread` is thread safe; `append` is not.
class File {
 public:
  virtual ~File() = default;
  // Writes everything at the end of the file or fails; after a failure the file's tail is
  // undefined.
  virtual int append(std::span<const std::span<const uint8_t>> parts) = 0;
  // Fills `out` completely or fails; EOF inside `out` is ENODATA.
  virtual int pread(uint64_t offset, std::span<uint8_t> out) = 0;
  virtual int size(uint64_t* out) = 0;
  // Everything appended so far survives a power loss once this returned 0.
  virtual int sync() = 0;
  // Asks the kernel to begin writing what was appended; never fails, promises nothing.
  virtual void start_writeback(uint64_t offset, uint64_t length) = 0;
  // Tells the kernel that synced bytes from here on need not stay in the page cache; never fails,
  // promises nothing.
  virtual void drop_cache(uint64_t from) { (void)from; }
};

struct FileInfo {
  bool directory = false;
  bool regular = false;
  uint32_t uid = 0;
  uint32_t mode = 0;
  uint64_t size = 0;
  int64_t mtime_ns = 0;
};

class Env {
 public:
  virtual ~Env() = default;
  virtual int open_read(const std::string& path, std::unique_ptr<File>* out) = 0;
  // Fails with EEXIST when the file is there: everything the store writes is written once. Mode
  // 0600.
  virtual int create(const std::string& path, std::unique_ptr<File>* out) = 0;
  // The same for a large file of which no more than the first `cached` bytes need stay in memory:
  // the rest goes past the page cache where that is possible.
  virtual int create_uncached(const std::string& path, uint64_t cached,
                              std::unique_ptr<File>* out) {
    (void)cached;
    return create(path, out);
  }
  virtual int mkdir(const std::string& path) = 0;  // mode 0700
  virtual int rename(const std::string& from, const std::string& to) = 0;
  virtual int remove(const std::string& path) = 0;
  virtual int list(const std::string& directory, std::vector<std::string>* names) = 0;
  virtual int info(const std::string& path,
                   FileInfo* out) = 0;  // does not follow a final symbolic link
  virtual int info_followed(const std::string& path, FileInfo* out) = 0;
  // Names created, renamed or removed in `directory` so far survive a power loss once this returned
  // 0.
  virtual int sync_directory(const std::string& directory) = 0;
  virtual int touch(
      const std::string& path) = 0;  // modification time = now, by the file system's clock
  virtual int free_bytes(const std::string& path, uint64_t* out) = 0;
  virtual int64_t now_ns() = 0;  // wall clock
  virtual void random(void* out, size_t length) = 0;
};

// The operating system's. Never destroyed.
Env* posix_env();

// One sentence: what was being done, to which file, what the system said, and what to do about it.
Status io_error(const std::string& doing, const std::string& path, int error);

// Reads a whole file; refuses one larger than `limit`.
Status read_file(Env* env, const std::string& path, uint64_t limit, std::vector<uint8_t>* out);

}  // namespace gpuckpt::store
