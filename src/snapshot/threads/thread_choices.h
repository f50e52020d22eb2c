// What a thread has asked of the kernel for itself alone, and what only it can ask for: what
// happens at a memory failure (PR_MCE_KILL), which speculation its processor may do
// (PR_SET_SPECULATION_CTRL), and whether it writes what others read (PR_SET_IO_FLUSHER).
//
// Owner: none. Threads: own_thread_choices() is of the calling one; the others PARKED, the
// coordinator. Errors: none; what the kernel does not know counts as not chosen.
#pragma once

#include "gpuckpt/process_format.h"

namespace gpuckpt {

class Records;
struct ParkedThread;

process::ThreadChoices own_thread_choices();
// Of the program's first parked thread: they stand in the Head for all threads.
process::ThreadChoices program_choices();
// Record kRecThreadChoices of a thread that has others than `common`, program_choices().
void put_thread_choices(Records*, const ParkedThread&, const process::ThreadChoices& common);

}  // namespace gpuckpt
