// How a process is distinguished from another one with the same number.
//
// Owner: none. Threads: any. Errors: empty text or 0 where /proc does not say.
#pragma once

#include <cstdint>
#include <string>

namespace gpuckpt::store {

// The id of this boot of the machine (/proc/sys/kernel/random/boot_id).
const std::string& boot_id();

std::string host_name();

// Identifies the namespace in which process ids are counted; two on one machine differ.
uint64_t pid_namespace();

// As start_time() of base/procfs/proc.h. 0: there is no such process, or it has ended.
uint64_t start_time(int64_t pid);

// By SIGSTOP or a terminal.
bool is_stopped(int64_t pid);

}  // namespace gpuckpt::store
