// Hooks: one thread for each attempt runs those before the snapshot, waits, and runs those after
// it. It is an ordinary thread of the process meanwhile, so that it is in the snapshot as well and
// continues in the restored process where it was.
#include <errno.h>
#include <pthread.h>

#include "base/syscall.h"
#include "base/text/text.h"
#include "gpuckpt/gpuckpt.h"
#include "snapshot/api/api.h"
#include "snapshot/control/state.h"
#include "snapshot/control/worker.h"

namespace gpuckpt {
namespace {

enum Kind : uint32_t { kOnSnapshot, kOnResume, kOnRestore };

struct Hook {
  std::atomic<uint32_t> number;  // 0: free, kBeing: being filled in
  Kind kind;
  gpuckpt_hook run;
  void* argument;
};
constexpr uint32_t kBeing = ~0u;
constexpr size_t kHooks = 64;
// Registered once by the program, for every later snapshot and restore.
Hook hooks[kHooks];
std::atomic<uint32_t> last_number{0};

enum Stage : uint32_t {
  kNone = 0,   // there is no thread
  kBefore,     // the on_snapshot hooks run
  kHeld,       // they have run; the snapshot is being taken
  kAbandoned,  // they took too long: on to the on_resume hooks
  kResume,
  kRestore,
};
std::atomic<uint32_t> stage{kNone};  // futex word
std::atomic<uint32_t> running{0};    // number of the hook that runs

[[gnu::tls_model("initial-exec")]] constinit thread_local bool t_hook = false;

int add_hook(Kind kind, gpuckpt_hook run, void* argument) {
  if (!run) return -EINVAL;
  for (Hook& h : hooks) {
    uint32_t free = 0;
    if (!h.number.compare_exchange_strong(free, kBeing)) continue;
    h.kind = kind, h.run = run, h.argument = argument;
    const uint32_t number = ++last_number;
    h.number = number;
    return static_cast<int>(number);
  }
  return -ENOSPC;
}

// Calls those that are there when it begins, in order or in reverse.
void run_hooks(Kind kind) {
  const bool reverse = kind == kOnSnapshot;
  const uint32_t end = last_number + 1;
  for (uint32_t done = reverse ? end : 0;;) {
    const Hook* next = nullptr;
    uint32_t best = reverse ? 0 : end;
    for (const Hook& h : hooks) {
      const uint32_t n = h.number;
      if (n == 0 || n >= end || h.kind != kind) continue;
      if (reverse ? n < done && n > best : n > done && n < best) best = n, next = &h;
    }
    if (!next) return;
    done = best;
    const gpuckpt_hook run = next->run;
    void* const argument = next->argument;
    if (next->number != done) continue;  // removed meanwhile
    running = done;
    run(argument);
    running = 0;
  }
}

void* hook_thread(void*) {
  pthread_detach(pthread_self());
  block_signals();
  t_hook = true;
  run_hooks(kOnSnapshot);
  uint32_t before = kBefore;
  if (stage.compare_exchange_strong(before, kHeld)) {
    sys::futex_wake(&stage, 1);
    while (stage == kHeld) sys::futex_wait(&stage, kHeld, 0);
  }
  run_hooks(stage == kRestore ? kOnRestore : kOnResume);
  stage = kNone;
  sys::futex_wake(&stage, 1);
  return nullptr;
}

bool any_hooks() {
  for (const Hook& h : hooks)
    if (h.number) return true;
  return false;
}

// Until the thread has got out of `from`.
bool await_stage(uint32_t from, uint64_t deadline_us) {
  while (stage == from) {
    const uint64_t now = sys::now_us();
    if (now >= deadline_us) return false;
    sys::futex_wait(&stage, from, deadline_us - now);
  }
  return true;
}

bool too_slow(char* text, size_t room) {
  format(text, room, "hook %u of the program has not returned in time", running.load());
  return false;
}

}  // namespace

bool inside_hook() { return t_hook; }

bool run_snapshot_hooks(uint64_t deadline_us, char* text, size_t room) {
  // Those of the last snapshot, or of the restore, may still be at it.
  for (uint32_t s; (s = stage) != kNone;)
    if (!await_stage(s, deadline_us)) return too_slow(text, room);
  if (!any_hooks()) return true;
  stage = kBefore;
  pthread_t thread;
  if (pthread_create(&thread, nullptr, hook_thread, nullptr) != 0) {
    stage = kNone;
    copy(text, room, "no thread for the program's hooks could be made");
    return false;
  }
  if (await_stage(kBefore, deadline_us)) return true;
  uint32_t before = kBefore;
  if (!stage.compare_exchange_strong(before, kAbandoned)) return true;  // just now
  return too_slow(text, room);
}

void run_resume_hooks() {
  uint32_t held = kHeld;
  if (stage.compare_exchange_strong(held, kResume)) sys::futex_wake(&stage, 1);
}

void hooks_after_fork() {
  stage = kNone;
  running = 0;
}

void hooks_after_restore() {
  uint32_t held = kHeld;
  stage.compare_exchange_strong(held, kRestore);
}

}  // namespace gpuckpt

using namespace gpuckpt;

GPUCKPT_EXPORT int gpuckpt_on_snapshot(gpuckpt_hook hook, void* argument) {
  return add_hook(kOnSnapshot, hook, argument);
}
GPUCKPT_EXPORT int gpuckpt_on_resume(gpuckpt_hook hook, void* argument) {
  return add_hook(kOnResume, hook, argument);
}
GPUCKPT_EXPORT int gpuckpt_on_restore(gpuckpt_hook hook, void* argument) {
  return add_hook(kOnRestore, hook, argument);
}
GPUCKPT_EXPORT int gpuckpt_remove_hook(int number) {
  if (number == 0) return 0;
  for (Hook& h : hooks) {
    uint32_t n = static_cast<uint32_t>(number);
    if (n != kBeing && h.number.compare_exchange_strong(n, 0)) return 0;
  }
  return -ENOENT;
}
