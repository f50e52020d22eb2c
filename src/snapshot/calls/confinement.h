// What a program does to itself by a system call that the kernel does not report afterwards, so
// that only the call itself can be noted: Landlock, Syscall User Dispatch, a session keyring of its
// own. And programs that a signal handler of ours could kill from some call on (seccomp.h).
//
// Owner: process-wide. Threads: the one that makes the call; the coordinator asks. Errors: none.
#pragma once

#include <cstddef>

namespace gpuckpt {

// From here on our handlers make no system calls (Library::deaf), and commands find no listener.
// Returns false if the library was deaf already.
bool become_deaf(const char* why);
void listen_again();
// For another reason as well than Syscall User Dispatch, which may end.
void stay_deaf();

// What a restore could not give back; false: nothing is known of. `text`: which, and what to do.
bool confined_for_good(char* text, size_t room);
bool joined_session_keyring();

// Letters that stand for these, for the environment of what exec starts (inherited.h).
inline constexpr size_t kConfinementText = 4;
void write_confinement(char* to, size_t room);
// Takes what stands at `text`.
void read_confinement(const char* text);

// In a child of fork: Syscall User Dispatch is its parent's thread's alone.
void forget_dispatch();

}  // namespace gpuckpt
