// The pipes and sockets that the program was started with besides standard input, output and error
// (a job server of make, what a shell or a service manager forgot to close), and the children that
// it had before it began (a shell's in the background, when the shell became the program). Nothing
// of the program depends on them as on what it opened itself, so they do not prevent a snapshot: a
// restore finds them closed at the other end, or gone, and the log says so.
//
// Owner: process-wide, and part of every snapshot. Threads: noted at the start by the main thread,
// or by the restore; read on the coordinator and the I/O thread. Errors: what cannot be read was
// not inherited.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/procfs/namespaces.h"

namespace gpuckpt {

// Before the program's own code runs: remembers what is open now.
void note_inherited_descriptors();

// Whether the pipe or socket with this inode number was among them.
bool inherited(uint64_t ino);
// Whether it was standard input (0), output (1) or error (2) then, or is that of the restore; -1:
// none of them. Daemons keep them under other numbers.
int inherited_standard(uint64_t ino);
void note_inherited_standard(const uint64_t (&inodes)[3]);
// What a restore will find in the place of process `pid`'s descriptor; `what`: its kind. `others`:
// how many more processes of the job have it.
void warn_of_inherited(int fd, const char* what, int pid, uint32_t others);

// Whether the program was started with this regular file open for appending (`>> log`). Then other
// processes write to it as well (the shell, the scheduler's prologue), also between a snapshot and
// its restore.
bool inherited_log(uint64_t dev, uint64_t ino);

// Under how many system call filters (seccomp.h) the process was started, or restored.
void note_inherited_filters();
// Does it run under more that are not its own than where the job began (set before an exec), or was
// restored? `status` is /proc/thread-self/status, of any thread.
bool added_filters(const char* status);

// Where it was started: its root folder and its namespaces (base/procfs/namespaces.h). `restorer`:
// where the restore was that made this process; null: none did, and the environment may say where
// the job began (started_in), for a program around this one may have moved since (unshare, bwrap).
void note_inherited_namespaces(const Namespaces* restorer);
// Has it been born into a pid namespace of its own since? (Async-signal-safe.)
bool in_new_pid_namespace();
// What is another one now, or another one than the leader's in the job? False: nothing.
bool changed_namespaces(char* text, size_t room);
// In which parts the process lives elsewhere than where the job began (or was restored), or than
// `asker`, the process that is likely to restore it. One bit for each part.
uint32_t foreign_parts(const Namespaces& asker);
// The program has just confined itself (confinement.h): what exec starts shall know of it.
void note_confinement();
// "GPUCKPT_STARTED_IN=...", for the environment of what exec starts.
char* started_in();

// The same for children.
void note_inherited_children();
bool inherited_child(int pid);

}  // namespace gpuckpt
