// Numbers of System V objects: a program keeps them, so what is made in the place of one that is
// gone needs its number.
//
// Owner: none. Threads: one. Errors: another number, or -1 with errno.
#pragma once

#include <functional>

namespace gpuckpt::restore {

enum class IpcKind { kSegment, kSemaphores, kQueue };

// Makes an object by make(), which returns its number or -1 with errno, so that it has this number
// if possible: any free one with CAP_CHECKPOINT_RESTORE, else one that the kernel has not reached
// yet. To get there takes up to some tenths of a second, which only `patient` allows, and many
// calls of make().
int make_with_number(IpcKind kind, int number, bool patient, const std::function<int()>& make);

}  // namespace gpuckpt::restore
