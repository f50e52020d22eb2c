// State of a process or thread that the kernel tells of and a restore could not give back: it is
// refused by name.
//
// Owner: the Capture. Threads: PARKED, the I/O thread. Errors: the Capture's failure.
#pragma once

#include <cstdint>

namespace gpuckpt {

struct Capture;
struct ParkedThread;

// What only the thread itself can ask for: in the handler in which it is parked.
struct RareThreadState {
  uint32_t personality;
  bool no_rdtsc;        // prctl(PR_SET_TSC, PR_TSC_SIGSEGV)
  bool no_cpuid;        // arch_prctl(ARCH_SET_CPUID, 0)
  bool thread_keyring;  // keyctl, KEY_SPEC_THREAD_KEYRING
};
RareThreadState rare_thread_state();
// Whether the process has segments of its own (modify_ldt), or the thread that asks this keyring
// (KEY_SPEC_*).
bool has_local_segments();
bool has_keyring(long which);
// Are children of the process born into another namespace of this kind ("pid", "time") than its own
// (unshare)?
bool has_namespace_for_children(const char* kind);
// PARKED. The execution domain of the program's threads, of the first one that has one. (Ours have
// that of the process that woke this one; the program may have changed its own since.)
uint32_t program_personality();
// In a thread of ours, which inherits from the one that started it: otherwise an instruction of
// ours could end the program.
void allow_rdtsc_and_cpuid();

// PARKED. False: refused.
bool check_rare_process_state(Capture*);
bool check_rare_thread_state(Capture*, const ParkedThread&);
// Of a process of the job, that lives or has ended: which signal tells its parent of its end.
bool check_exit_signal(Capture*, int pid);

}  // namespace gpuckpt
