// A file descriptor that closes itself, for ordinary C++ beside the application: the supervisor of
// a restore, the writer, the command line. (Inside the application a descriptor is a number; the
// one that belongs to a record is device/sharing/shareable.h's OwnFd.)
//
// Owner: the object; release() gives the descriptor to the caller. Threads: one at a time, as with
// a number. Errors: a negative descriptor means none; close(2)'s own are not reported.
#pragma once

#include <unistd.h>

namespace gpuckpt {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& o) noexcept : fd_(o.release()) {}
  Fd& operator=(Fd&& o) noexcept {
    if (this != &o) {
      reset();
      fd_ = o.release();
    }
    return *this;
  }
  ~Fd() { reset(); }
  int get() const { return fd_; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void reset() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace gpuckpt
