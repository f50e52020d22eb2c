// The control messages (cmsg(3)) of one sendmsg.
//
// Owner: the caller; what set() gave out is valid until the next add(). Threads: one. Errors: none.
#pragma once

#include <string.h>
#include <sys/socket.h>

#include <vector>

namespace gpuckpt::restore {

class Control {
 public:
  void add(int level, int type, const void* data, size_t bytes) {
    const size_t at = bytes_.size();
    bytes_.resize(at + CMSG_SPACE(bytes));
    cmsghdr c{};
    c.cmsg_level = level, c.cmsg_type = type, c.cmsg_len = CMSG_LEN(bytes);
    memcpy(bytes_.data() + at, &c, sizeof(c));
    memcpy(bytes_.data() + at + CMSG_LEN(0), data, bytes);
  }
  void set(msghdr* m) {
    m->msg_control = bytes_.empty() ? nullptr : bytes_.data();
    m->msg_controllen = bytes_.size();
  }

 private:
  std::vector<char> bytes_;
};

}  // namespace gpuckpt::restore
