// Whether processes can get the ids they had. Root chooses them; other users can do so in a pid
// namespace of their own user namespace, where that is permitted.
//
// Owner: none. Threads: one, the functions fork. Errors: a sentence, or -1 with errno.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace gpuckpt::restore {

// fork with a chosen process id (0: any).
pid_t fork_as(pid_t pid, uint64_t flags);

// Called in a process that was forked into new namespaces: makes them usable. Returns the reason
// why they are not, or "".
std::string map_ids_and_mount_proc(bool user_namespace, uid_t, gid_t);

// Why ids cannot be chosen, determined by processes that end at once; empty: they can.
std::string why_no_ids_here();          // in this pid namespace
std::string why_no_ids_in_namespace();  // in one that a restore makes
std::string why_no_job_ids();           // in neither: jobs of several processes cannot be restored

}  // namespace gpuckpt::restore
