// What the application may say to us (include/gpuckpt/gpuckpt.h), as the engine sees it. The
// exported functions themselves are in api_checkpoint.cc, api_sections.cc, api_hooks.cc and
// api_memory.cc.
//
// The tables are fixed arrays of atomics: the application's side of them never holds anything that
// the coordinator could have to wait for.
//
// Owner: process-wide. Threads: the exported functions: any of the application's; the rest: the
// coordinator. Errors: false, with a text.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/heap.h"

namespace gpuckpt {

struct Snapshot;

// --- checkpoints that were asked for, and the tag of the next snapshot. ON THE COORDINATOR.

// The oldest that waits becomes the job's: its tag and timeout are the job's now. False: there is
// none.
bool take_request(Snapshot*);
bool requests_wait();
// Its result, for the thread that waits; nothing without a request.
void finish_request(const Snapshot*);
// The tag that gpuckpt_tag left, for a job without one; back again when the snapshot failed.
void take_tag(Snapshot*);
void return_tag(const Snapshot*);

// --- critical sections. ON THE COORDINATOR, no thread parked.

// Keeps threads from entering and waits until none is inside. False: a thread still was, after
// `patience_us`; `text` names one, and all may enter again.
bool close_sections(uint64_t patience_us, char* text, size_t room);
void open_sections();

// --- hooks. ON THE COORDINATOR, no thread parked.

// Starts their thread, if there are any, and returns when the on_snapshot hooks have run. False:
// they have not by `deadline_us`; the on_resume hooks follow all the same.
bool run_snapshot_hooks(uint64_t deadline_us, char* text, size_t room);
// Lets their thread run the on_resume hooks; does not wait for them.
void run_resume_hooks();

// --- excluded memory.

// PARKED. The first excluded piece of [from, to).
bool next_excluded(uint64_t from, uint64_t to, Range* piece);
// Has memory been included since this was asked last? Then no snapshot before has it.
bool excluded_came_back();

// --- all of it

void api_after_fork();  // in the child of fork(2)
// In the restored process, before any thread of the application runs. `id`: what it was restored
// from.
void api_after_restore(const char* id);

// Of the parts, for the two above and for each other.
void requests_after_fork();
void requests_after_restore(const char* id);
void sections_after_fork();
void hooks_after_fork();
void hooks_after_restore();
bool inside_section();  // the calling thread
bool inside_hook();

}  // namespace gpuckpt

#define GPUCKPT_EXPORT extern "C" __attribute__((visibility("default")))
