// How root uses stores of other users.
#pragma once

#include <string>

#include "store/status.h"

namespace gpuckpt::cli {

// A snapshot is a program, and says itself which ids, groups and capabilities it has, and which
// files it has open: root that restores a stranger's would give all that away. So with --any-owner
// root becomes the store's owner before the store is opened, with the owner's groups and without
// capabilities, and runs the same command line again: the kernel then refuses what the owner must
// not have, here and in everything that is started. Returns Ok where nothing has to be done: no
// root, no --any-owner (which is dropped for a store of root's own), or a remote store.
store::Status become_owner_of(const std::string& reference);

}  // namespace gpuckpt::cli
