// Whether snapshots can be written to a store, checked before the first one is due.
#pragma once

#include <memory>
#include <string>

#include "store/store.h"
#include "verb.h"

namespace gpuckpt::cli {

// `path` in the form that the writer uses: absolute, without a slash at its end.
std::string store_path(const std::string& path);

// The reason why this user cannot write snapshots to the store at `path` (absolute), in one
// sentence; ok when they can, also where the store does not exist yet. Changes nothing on the disk.
// `*store`: the store, when there is one. `*directory`: it, or the nearest existing folder above
// it.
Status check_writable(const std::string& path, std::unique_ptr<store::Store>* store,
                      std::string* directory);

}  // namespace gpuckpt::cli
