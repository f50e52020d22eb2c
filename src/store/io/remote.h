// Stores that are not in a directory of this machine: "rclone:REMOTE:PATH", whatever rclone can
// reach. For mirrors, and for reading what a mirror holds.
//
// Files are written here first and uploaded whole by sync(), under their temporary name; rename is
// rclone's moveto. So the order of uploads is the order of writes, and a manifest is seen when all
// it needs is there. What is read is downloaded first, into a directory of our own that goes away
// when we end.
//
// Locks are files as everywhere, but no remote promises that two who create one at the same moment
// both see it: one writer (mirror, prune) at a time is the caller's business.
#pragma once

#include <string>

#include "store/io/env.h"

namespace gpuckpt::store {

bool is_remote(const std::string& path);
// The Env for a store at this path; never destroyed.
Env* env_for(const std::string& path);
// What rclone said of its last failure, one line.
std::string remote_complaint();

}  // namespace gpuckpt::store
