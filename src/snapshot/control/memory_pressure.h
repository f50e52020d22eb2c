// A copied child keeps every page that the program changes until the page is sent: in the worst
// case all memory is there twice. This tells when that goes too far, so that the program is made to
// wait until its pages are out.
//
// Owner: none. Threads: the I/O thread. Errors: none; what cannot be read is no pressure.
#pragma once

#include <cstdint>

namespace gpuckpt {

// ON THE I/O THREAD. Is less memory left, of the machine or of a control group of ours
// (base/procfs/memory_room.h), than 1/32 of all of it; or, with `limit` bytes other than 0, does
// `child` have more than that to itself? (The latter walks its page tables.)
bool memory_pressure_exceeds(int child, uint64_t limit);

}  // namespace gpuckpt
