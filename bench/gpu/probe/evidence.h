// What a first meeting with an unknown driver must leave behind: the last things that happened, and
// where a thread is when it crashes or hangs. Written as `@{json}` stages to standard output by raw
// system calls, so that it works with a broken heap (probe only: no product code).
#pragma once

#include <cstdint>

namespace probe {

// One thing that happened; the last 512 are kept, from all threads. `kind` and `name` are literals
// or live for ever; `text` (may be null) is copied, cut.
void evidence_note(const char* kind, const char* name, uint64_t a, uint64_t b, uint64_t c,
                   int64_t result, int error, const char* text);

// Handlers for fatal signals, for SIGQUIT ("hung: say where you are", the process goes on) and
// SIGALRM (the same, then it ends with status 99). Call once per process; fork()ed children have
// them too. Threads of others are served on their own stacks.
void evidence_install();

// Called once after the report of a crash or a hang, to save what else is known; may itself crash.
extern void (*evidence_last_words)();

// Writes the last `count` things that happened as a stage of this name.
void evidence_dump(const char* stage, int count);

}  // namespace probe
