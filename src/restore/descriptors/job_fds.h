// What the processes of a job share among their descriptors: open file descriptions, and pipes,
// sockets and terminals whose ends are in several processes. All of it is made once, in the process
// that becomes the root, before the others are forked from it.
//
// Owner: the process that calls, and those forked from it. Threads: one. Errors: a sentence, or
// false with errno.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "restore/descriptors/fds.h"
#include "restore/image/tree.h"

namespace gpuckpt::restore {

// Descriptors of this process, by member (index in the tree) and Descriptor::description.
using CommonFds = std::map<std::pair<size_t, int>, int>;

// Makes them at numbers from `base` up. Returns an error, empty when all went well.
std::string make_common_descriptors(const Tree&, int base, const Warn& warn, CommonFds* out);

// Pidfds, which can be opened when all processes exist. One that several processes have is opened
// by the first of them, which sends it to the others through a socket that was made before.
class SharedPidfds {
 public:
  bool prepare(const Tree&);  // before the second process is forked
  // Called in member i when all exist: adds its own to `made`, by description. False: errno says
  // why.
  bool exchange(size_t i, std::map<int, int>* made) const;

 private:
  struct Shared {
    std::vector<std::pair<size_t, int>> holders;  // member, its description; the first one opens it
    pid_t pid;
    int flags, sender, receiver;
  };
  std::vector<Shared> all_;
};

}  // namespace gpuckpt::restore
