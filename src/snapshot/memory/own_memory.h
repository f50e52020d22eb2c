// Reads memory of this process that may not be there, without a signal for the program.
//
// Owner: the caller's buffer. Threads: any. Errors: fewer bytes than were asked for.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace gpuckpt {

// Copies up to `bytes` of this process's memory to `to` and returns how many it could: what lies
// beyond the end of a mapped file, or cannot be read from the disk, ends the copy and is no SIGBUS
// for the program. Takes no lock.
uint64_t copy_own_memory(void* to, const void* from, uint64_t bytes);

// Lets fresh memory of ours be there before it is written to, in huge pages where the kernel has
// some: 2 MiB at a time, because the program's threads wait for the lock of the memory map
// meanwhile.
void populate_memory(uint64_t start, uint64_t bytes);

// Copies `count` pieces through `memory`, a descriptor of /proc/self/mem, to behind each other, and
// returns how many bytes it could. For pages that may be in common with other processes:
// process_vm_readv pins what it reads, for which the kernel gives the process copies of such pages
// (from Linux 5.19 on). Half as fast.
long copy_unpinned(int memory, void* to, const iovec* from, size_t count);

}  // namespace gpuckpt
