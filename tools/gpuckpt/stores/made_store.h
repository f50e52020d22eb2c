// A store that a verb makes for what it is about to write. Where the verb fails, nothing of it
// stays.
#pragma once

#include <string>

namespace gpuckpt::cli {

class MadeStore {
 public:
  // Looks, before the store is opened with `create`, whether it is there.
  explicit MadeStore(std::string path);
  // Removes the store if it was not there. Does nothing where another process has begun to use it
  // meanwhile: a lock, a lease or a snapshot is in it.
  void discard() const;

 private:
  const std::string path_;
  const bool folder_was_there_, store_was_there_;
};

}  // namespace gpuckpt::cli
