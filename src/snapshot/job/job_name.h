// Which processes belong to this job although no chain of parents says so: daemons, whose parent
// has ended.
//
// The first process of a job gives the job a name, which every process of it has: fork copies it
// with the memory, and exec with the environment (GPUCKPT_JOB_NAME). From outside a process is
// known by that variable, or, as a fork of the first process, by its auxiliary vector: addresses
// that the kernel chose at random for the first. That can be a coincidence where addresses are not
// chosen at random; when the processes then talk to each other, they compare names (barrier.h).
//
// A restored job takes another name: it may run beside the one that it was.
//
// Owner: process-wide, and part of every snapshot. Threads: the coordinator and the I/O thread;
// forks are counted on any. Errors: false or 0: not known.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuckpt {

// In the constructor: the name is inherited, or this is the first process and makes one.
void find_job_name(char** environment);
// "NUMBER-HASH-RANDOM": the first process, its auxiliary vector, and one of many.
const char* job_name();
// The last part of it: which run of a job this is (store/io/lease.h). `gpuckpt run` may have chosen
// it (GPUCKPT_RUN_ID), so that it can take the job for the run beforehand.
const char* run_name();
// In a restored process, for all of the job the same. `leader`: the process that led the snapshot
// and leads the next one, although another one may be older now (0: not said).
void rename_job(uint64_t random, int leader);
// The number of the process that leads the job unless it has ended: the one that the restore named,
// or the first one.
int leader_of_job();
int first_of_job();  // the first one; it may have ended

// Whether the process has this job's name. Reads /proc, which disturbs no other process.
bool has_job_name(int pid, uint64_t started);

// Changes when this process has had a child, also one that is gone already.
uint64_t births();
void count_birth();  // fork
// Whether there may be any such process at all. False costs nothing to find out.
bool may_have_other_members();

// What exec passes on: `environment`, or, when it has our library but not our name, or not where
// the job began (inherited.h), a copy in `room` (with two entries more than `environment`) that
// does. Async-signal-safe.
char* const* named_environment(char* const* environment, char** room);
size_t environment_length(char* const* environment);

}  // namespace gpuckpt
