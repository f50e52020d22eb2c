// Shared memory that several processes of a job map: each part of it is copied by one of them. A
// restore makes the object once, and puts into it what each process has of it.
//
// Owner: the job's shared state. Threads: PARKED, of all processes of the job. Errors: what cannot
// be noted is copied by each.
#pragma once

#include <cstdint>

namespace gpuckpt {

// Bytes of a part, from multiples of itself on; a power of two. Larger where a page is.
constexpr uint64_t kSharedPart = 16 << 20;

// In a job of several processes. Whether another process copies [start, end) of the object. If not,
// this one does, and the others hear of it.
bool copied_by_another(uint64_t dev, uint64_t ino, uint64_t start, uint64_t end);

}  // namespace gpuckpt
