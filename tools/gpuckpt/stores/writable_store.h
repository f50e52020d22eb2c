// Whether snapshots can be written to a store, asked before the first one has to be.
#pragma once

#include <memory>
#include <string>

#include "store/store.h"
#include "verb.h"

namespace gpuckpt::cli {

// `path` as the writer will find it: absolute, without a slash at its end.
std::string store_path(const std::string& path);

// Why this user could not write snapshots to the store at `path` (absolute), in one sentence; ok
// when they can, also where the store is still to be made. Changes nothing on the disk. `*store`:
// the store, when there is one. `*directory`: it, or the nearest folder above that exists.
Status check_writable(const std::string& path, std::unique_ptr<store::Store>* store,
                      std::string* directory);

}  // namespace gpuckpt::cli
