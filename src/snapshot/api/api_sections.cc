// gpuckpt_enter and gpuckpt_leave: a count of the threads inside, and their ids.
#include <errno.h>

#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "gpuckpt/gpuckpt.h"
#include "snapshot/api/api.h"
#include "snapshot/control/state.h"

namespace gpuckpt {
namespace {

// The threads inside, for messages, and for threads that end there. When the table is full a thread
// goes without an entry.
struct Inside {
  std::atomic<int> tid;  // 0: free, -1: being filled in
  uint64_t since_us;
  char name[48];
};
constexpr size_t kEntries = 512;
Inside entries[kEntries];

std::atomic<uint32_t> inside{0};  // threads; futex word
std::atomic<uint32_t> closed{0};  // futex word

[[gnu::tls_model("initial-exec")]] constinit thread_local uint32_t t_depth = 0;
[[gnu::tls_model("initial-exec")]] constinit thread_local Inside* t_entry = nullptr;

Inside* make_entry(const char* name) {
  const int tid = sys::gettid();
  for (size_t i = 0; i < kEntries; ++i) {
    Inside& e = entries[(static_cast<size_t>(tid) + i) % kEntries];
    int expected = 0;
    if (!e.tid.compare_exchange_strong(expected, -1)) continue;
    e.since_us = sys::now_us();
    copy(e.name, sizeof(e.name), name ? name : "");
    e.tid = tid;
    return &e;
  }
  return nullptr;
}

void one_left() {
  if (inside.fetch_sub(1) == 1 && closed) sys::futex_wake(&inside, 1);
}

// Threads that ended inside a section.
void forget_the_dead() {
  for (Inside& e : entries) {
    int tid = e.tid;
    if (tid <= 0 || sys::call(SYS_tgkill, sys::getpid(), tid, 0) != -ESRCH) continue;
    if (e.tid.compare_exchange_strong(tid, 0)) one_left();
  }
}

void name_one(char* text, size_t room) {
  const Inside* longest = nullptr;
  for (const Inside& e : entries)
    if (e.tid > 0 && (!longest || e.since_us < longest->since_us)) longest = &e;
  if (!longest) {
    copy(text, room, "a thread stays inside a critical section");
    return;
  }
  char path[64], name[64];
  format(path, sizeof(path), "/proc/self/task/%d/comm", longest->tid.load());
  long n = read_file(path, name, sizeof(name));
  if (n > 0 && name[n - 1] == '\n') name[n - 1] = 0;
  format(text, room, "thread %d (%s) has been inside the critical section \"%s\" for %lu ms",
         longest->tid.load(), n > 0 ? name : "?", longest->name,
         (sys::now_us() - longest->since_us) / 1000);
}

}  // namespace

bool inside_section() { return t_depth != 0; }

bool close_sections(uint64_t patience_us, char* text, size_t room) {
  closed = 1;
  const uint64_t deadline = sys::now_us() + patience_us;
  while (uint32_t n = inside) {
    if (sys::now_us() > deadline) {
      name_one(text, room);
      open_sections();
      return false;
    }
    sys::futex_wait(&inside, n, 5000);
    forget_the_dead();
  }
  return true;
}

void open_sections() {
  closed = 0;
  sys::futex_wake(&closed, 0x7fffffff);
}

void sections_after_fork() {
  for (Inside& e : entries)
    if (&e != t_entry) e.tid = 0;
  if (t_entry) t_entry->tid = sys::gettid();
  inside = t_depth ? 1 : 0;
  closed = 0;
}

}  // namespace gpuckpt

using namespace gpuckpt;

GPUCKPT_EXPORT void gpuckpt_enter(const char* name) {
  if (t_depth++) return;
  // The closing thread reads `inside` after it has set `closed`: one of the two sees the other.
  for (;;) {
    ++inside;
    if (!closed) break;
    one_left();
    sys::futex_wait(&closed, 1, 0);
  }
  t_entry = make_entry(name);
}

GPUCKPT_EXPORT int gpuckpt_leave(void) {
  if (!t_depth) return -EPERM;
  if (--t_depth) return 0;
  if (t_entry) t_entry->tid = 0;
  t_entry = nullptr;
  one_left();
  return 0;
}
