// The terminal that `restore` was started from, which becomes the program's: it gets the settings
// (raw mode, echo, special characters) that the program's terminal had at the snapshot, and its own
// settings back when the program has ended, as a shell does.
//
// Owner: the supervisor. Threads: the main thread. Errors: none; a terminal that cannot be set
// stays as it is.
#pragma once

#include <cstdint>

#include "restore/image/tree.h"

namespace gpuckpt::restore {

class LauncherTerminal {
 public:
  LauncherTerminal() = default;
  LauncherTerminal(const LauncherTerminal&) = delete;
  LauncherTerminal& operator=(const LauncherTerminal&) = delete;
  ~LauncherTerminal() { take_back(); }
  void give_to(const Tree&);
  void take_back();

 private:
  int fd_ = -1;           // -1: nothing to put back
  uint8_t before_[64]{};  // struct termios2
};

}  // namespace gpuckpt::restore
