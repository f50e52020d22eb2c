// The threads of the program, each with all that a restore gives back to it.
//
// Owner: the Capture's records. Threads: PARKED, the I/O thread. Errors: the Capture's failure.
#pragma once

namespace gpuckpt {

struct Capture;
class Records;
class ThreadStatuses;

// Records kRecThread and those that go with one, the process's first thread before the others.
// Returns false if the snapshot is refused.
bool put_threads(Capture*, Records*, ThreadStatuses*);

}  // namespace gpuckpt
