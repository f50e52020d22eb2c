// A file that gets its name only when it is complete: readers see the old contents or the new ones.
//
// Other users may be able to write to the folder. Nothing that they put there is opened, followed
// or kept: the file is created under a random name with O_EXCL, beside the one it replaces, and
// renamed over it; a symbolic link is replaced and not followed. Devices and pipes are the
// exception, and are written where they are: /dev/stderr as a status file stays /dev/stderr.
//
// Raw system calls only: usable in the application's process, whatever its umask.
//
// Owner: NewFile closes its descriptors and removes a file that was not published. Threads: one per
// object. Errors: -errno.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuckpt {

class NewFile {
 public:
  enum Mode { kUsual, kPrivate, kExactly };

  NewFile() = default;
  ~NewFile();  // without publish(): nothing happened
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  // kUsual: the mode of the file that is replaced, if that is the caller's own, else 0644 without
  // the bits of the umask. kPrivate: 0600. kExactly: `mode` and, for root, the owner. 0, or -errno.
  long create(const char* path, Mode how, uint32_t mode = 0, uint32_t uid = ~0u,
              uint32_t gid = ~0u);
  int fd() const { return fd_; }
  long write(const void* bytes, size_t count);
  // The file gets its name; with `durable` it is synced before.
  long publish(bool durable = false);

 private:
  long open_in_place(const char* name);
  long create_beside(const char* name, Mode how, uint32_t mode);

  int folder_ = -1, fd_ = -1;
  bool in_place_ = false;
  char pending_[48] = "", name_[256] = "";
};

// All of it at once. 0, or -errno.
long replace_file(const char* path, const char* text, size_t length);

}  // namespace gpuckpt
