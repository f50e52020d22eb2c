// Sets the options of the program's sockets (gpuckpt/socket_options.h).
//
// Owner: the caller's descriptors. Threads: one for each socket. Errors: false with errno; an
// option that cannot be set is left, and option_differences() names it.
#pragma once

#include <string>

#include "restore/image/image.h"

namespace gpuckpt::restore {

enum class OptionMoment {
  kBeforeBind,
  kAtLast,  // all remaining ones, including those that were set too early before
};
// Options that cannot be set are left as they are; option_differences lists them.
void apply_options(int fd, const Image::Socket&, OptionMoment);
// Sets only the options that decide which addresses a socket can have.
void apply_binding_options(int fd, const Image::Socket&);
// Names of the options that differ from the snapshot, "SO_MARK, SO_DEBUG"; empty: none.
std::string option_differences(int fd, const Image::Socket&);
// Joins the multicast groups. False: errno tells why one cannot be joined.
bool join_groups(int fd, const Image::Socket&);

// The value of an option as it was read; `otherwise`: it was not.
int option_value(const Image::Socket&, int level, int name, int otherwise);

// Room for everything that a socket's queue may hold, as long as this lives.
class LargeBuffer {
 public:
  // `name`, `force`: SO_SNDBUF and SO_SNDBUFFORCE, or those for receiving.
  LargeBuffer(int fd, int name, int force, size_t content = 0);
  ~LargeBuffer();
  LargeBuffer(const LargeBuffer&) = delete;
  LargeBuffer& operator=(const LargeBuffer&) = delete;

 private:
  void set(int bytes) const;
  int fd_, name_, force_, before_ = 0;
};

}  // namespace gpuckpt::restore
