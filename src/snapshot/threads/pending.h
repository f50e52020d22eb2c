// Signals that wait to be taken, of the process and of each thread, with all that they say.
//
// They are looked at where they wait, by a tracer (tracer.h). Where none is allowed they are taken
// out and queued again, which a program that goes on could notice: a timer that expires between
// the two has two signals then, and the overruns of the first one end there.
//
// Owner: the Capture's records. Threads: PARKED: no signal can be delivered. Errors: the
// Capture's failure.
#pragma once

namespace gpuckpt {

struct Capture;
class Records;
class ThreadStatuses;

// Records kRecPending and kRecThreadPending.
bool put_pending(Capture*, Records*, const ThreadStatuses&);

}  // namespace gpuckpt
