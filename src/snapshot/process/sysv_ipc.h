// System V semaphores and message queues of the program, with their values and messages, and what
// the kernel would undo of them at the end of this process.
//
// Owner: the attempt. Threads: the coordinator. Errors: the capture's refusal; what cannot be read
// is a warning.
#pragma once

namespace gpuckpt {

class Records;
struct Capture;

// PARKED, when all processes of the job are. Reading takes nothing away.
bool put_sysv_ipc(Capture*, Records*);

}  // namespace gpuckpt
