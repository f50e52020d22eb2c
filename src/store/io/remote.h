// Stores that are not in a directory of this machine: "rclone:REMOTE:PATH", any remote that rclone
// can reach. For mirrors, and for reading what a mirror holds.
//
// Files are written to a local directory first and uploaded whole by sync(), under their temporary
// name; rename is rclone's moveto. So the order of uploads is the order of writes, and a manifest
// is seen only when everything it names is there. Files that are read are downloaded first, into a
// directory of our own that is removed when the process ends.
//
// Locks are files as in every store, but a remote does not promise that two processes which create
// one at the same moment both see it: the caller must allow one writer (mirror, prune) at a time.
//
// Owner: process-wide, never destroyed. Threads: as Env. Errors: errno values as Env;
// remote_complaint() has rclone's words.
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
