// --self-contained: what is mapped of files (libraries, the program itself, data) goes into the
// snapshot as well, so that a restore needs none of them. Noted while parked; read by the thread
// that sends the host's memory, with the program running. A file that changes in between fails the
// snapshot: its mapped pages were the old ones.
//
// Owner: the Capture. Threads: note(): PARKED; send(): what sends the host's memory. Errors: false.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>

#include "base/heap.h"
#include "snapshot/io/ring.h"

namespace gpuckpt {

class EmbeddedFiles {
 public:
  bool start();  // allocates; before any thread is parked
  void finish();
  bool active() const { return static_cast<bool>(memory_); }

  // PARKED. [offset, offset+bytes) of file number `index` is mapped; `st` is what its name stands
  // for. False: too many.
  bool note(int index, const char* path, const struct stat& st, uint64_t offset, uint64_t bytes);
  // Sends every noted piece once. False: `text` says which file is in the way.
  bool send(Producer*, char* text, size_t room);

 private:
  struct Piece {
    int index;
    uint32_t path;  // in paths
    uint64_t offset, end;
    uint64_t ino, size, mtime_ns;
  };
  Piece* pieces() const;
  bool send(Producer*, const Piece&, int fd);
  Region memory_;  // what is read of a file on its way to the producer, then the pieces
  Region paths_;
  size_t count_ = 0, path_bytes_ = 0;
};

}  // namespace gpuckpt
