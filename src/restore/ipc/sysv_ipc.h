// System V semaphores and message queues of a job as they were at the snapshot. They belong to no
// process and outlive them: what the program has done with them since then is put back, and one
// that is gone is made again under its number.
//
// Owner: the supervisor. Threads: one. Errors: a Status; one that is destroyed without keep()
// undoes everything.
#pragma once

#include <string>
#include <vector>

#include "restore/image/image.h"
#include "restore/image/tree.h"
#include "store/status.h"

namespace gpuckpt::restore {

// What keeps them from being put back, a sentence each. Changes nothing.
std::vector<std::string> check_sysv_ipc(const Tree&);

class SysvPutBack {
 public:
  ~SysvPutBack();
  // Values that a living process was the last to change are left to it, with a warning.
  store::Status run(const Tree&);
  void keep() { undo_.clear(); }

 private:
  struct Undo {
    bool queue;
    int id;
    bool made;                     // it was not there
    std::vector<uint16_t> values;  // else what it held
    std::vector<Image::TypedMessage> messages;
  };
  store::Status put(const process::SemaphoreSet&, const std::vector<uint16_t>& values);
  store::Status put(const process::MessageQueue&, const std::vector<Image::TypedMessage>&);

  std::vector<Undo> undo_;
};

}  // namespace gpuckpt::restore
