// The library's private memory: never malloc's, so that it can be used while the application's
// threads are parked with malloc's locks held, and so that what is ours can be told from what is
// the application's.
//
// `Region` is a mapping with a PROT_NONE page on both sides: the kernel cannot merge it with a
// neighbour. Scratch regions are registered and left out of snapshots; they do not exist after a
// restore.
//
// Owner: a Region is unmapped by the code that mapped it, not by a destructor. Threads: any.
// Errors: an empty Region.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuckpt {

struct Region {
  uint64_t start = 0;  // of usable memory; guards lie outside
  uint64_t bytes = 0;
  explicit operator bool() const { return start != 0; }
  char* data() const { return reinterpret_cast<char*>(start); }
};

// Where to ask mmap for a mapping of ours: away from the addresses that the kernel chooses for the
// program's mappings. A hole among those stays one, so that the program can map it again, grow into
// it, or find that nothing is there. Each address is given once; where it is taken the kernel
// chooses. Thread safe.
uint64_t own_address(uint64_t bytes);

// Private anonymous memory (fd < 0) or a shared mapping of `fd`. Null region when the kernel
// refuses.
Region region_map(uint64_t bytes, int fd = -1);
void region_unmap(Region*);

// The same, remembered as scratch.
Region scratch_map(uint64_t bytes, int fd = -1);
void scratch_unmap(Region*);
// Calls for every scratch region, guards included.
struct Range {
  uint64_t start, end;
};
// Copies at most `room` scratch ranges (guards included), sorted by address.
size_t scratch_ranges(Range* out, size_t room);
// After a restore none of them is mapped any more.
void scratch_forget();
// In the child of a fork, before anything else of ours runs there: the scratch regions are the
// parent's, and a thread that is not here may have held the locks.
void memory_after_fork();

// A small allocator on top, under a Mutex: 16-byte aligned, sizes up to some MiB. It never gives
// memory back to the kernel.
void* heap_alloc(size_t bytes);
void heap_free(void* p);

}  // namespace gpuckpt
