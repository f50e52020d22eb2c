// Does something as another process, so that the kernel records that process's number and user
// (SO_PEERCRED, SCM_CREDENTIALS).
//
// Owner: none. Threads: the calling process has one. Errors: false with errno.
#pragma once

#include <unistd.h>

#include <functional>

namespace gpuckpt::restore {

struct Credentials {
  pid_t pid;  // 0: not known
  uid_t uid;
  gid_t gid;
};

// Calls `body` in a short-lived process with that number and these ids, which shares our
// descriptors; its memory is a copy, but for `out`. Where this is not possible, or not needed, it
// is called here. The result is its result, with its errno.
bool as_process(const Credentials&, const std::function<bool(int* out)>& body, int (&out)[2]);

}  // namespace gpuckpt::restore
