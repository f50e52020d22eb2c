// State that the files of the entry share. A process is restored at most once at a time, before any
// code of the program runs.
//
// There is no thread pointer on the first thread and glibc is as the snapshot left it: raw system
// calls only, here and in all files of this folder.
//
// Owner: the restored process; it lives until the last thread has left the entry. Threads: the
// first thread; others use the atomics, and their own RestoredThread. Errors: die().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/heap.h"
#include "gpuckpt/process_format.h"
#include "restore/protocol/plan.h"

namespace gpuckpt::entry {

struct RestoredThread {
  process::Thread saved;
  int tid;
  const char* pending;  // siginfos that are pending for this thread alone
  size_t pending_count;
  const process::MemoryPolicy* policy;
  const uint32_t* groups;  // supplementary groups
  uint32_t group_count;
  const process::ThreadFolder* folder;    // null: it has the process's folder
  const process::ThreadChoices* choices;  // null: it has what the Head says
};

struct State {
  restore::Plan* plan;
  RestoredThread* threads;
  size_t count;
  Region thread_memory, stack_memory;
  std::atomic<uint32_t> ready;
  std::atomic<uint32_t> release_driver, take_credentials, release;  // futex words
  std::atomic<uint32_t>
      have_credentials;  // threads that have their credentials and wait for `release`
  std::atomic<uint32_t> left;
  bool locks_free;
  uint64_t started_us;
  process::Head head;
};
extern State state;

// Tells the supervisor why the restore fails (an exit code and a sentence), and ends the
// process.
[[noreturn]] void die(int code, const char* pattern, ...) __attribute__((format(printf, 2, 3)));

// Tells the supervisor what the process begins (kReportStep): a name, and the seconds that it
// may take, 0: as many as its data need.
void begin_step(const char* name, int seconds);

// Calls each(head, payload) for every record of the description of the process.
template <typename Each>
void each_record(const restore::Plan* p, Each each) {
  const char* at = reinterpret_cast<const char*>(p) + p->process;
  const char* end = at + p->process_bytes;
  while (at + sizeof(process::RecordHead) <= end) {
    const auto* h = reinterpret_cast<const process::RecordHead*>(at);
    each(*h, at + sizeof(*h));
    at += sizeof(*h) + ((h->bytes + 7) & ~7ull);
  }
}

}  // namespace gpuckpt::entry
