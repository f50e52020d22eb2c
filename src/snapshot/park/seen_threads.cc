#include "snapshot/park/seen_threads.h"

#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"

namespace gpuckpt {
namespace {

// Processor time of a thread of this process in nanoseconds; 0: there is no such thread.
uint64_t processor_time(int tid) {
  constexpr uint32_t kThreadClock = 6;  // of clock_gettime: the scheduler's count of one thread
  const uint32_t clock = ~static_cast<uint32_t>(tid) << 3 | kThreadClock;
  sys::Timespec t{};
  if (sys::failed(sys::call(SYS_clock_gettime, static_cast<int>(clock), sys::ptr(&t)))) return 0;
  return static_cast<uint64_t>(t.sec) * 1000000000 + static_cast<uint64_t>(t.nsec);
}

}  // namespace

bool read_syscall(ProcFolder* tasks, int tid, SyscallState* s) {
  char name[32], text[256];
  format(name, sizeof(name), "%d/syscall", tid);
  s->nr = -1;
  if (tasks->read(name, text, sizeof(text)) <= 0) return false;
  if (text[0] < '0' || text[0] > '9') return true;  // "running", "-1 sp pc"
  const char* p = text;
  long nr = static_cast<long>(scan_dec(&p));
  uint64_t* to[8] = {&s->argument[0], &s->argument[1], &s->argument[2], &s->argument[3],
                     &s->argument[4], &s->argument[5], &s->sp,          &s->pc};
  for (uint64_t* v : to) {
    while (*p == ' ') ++p;
    if (p[0] != '0' || p[1] != 'x') return true;
    p += 2;
    *v = scan_hex(&p);
  }
  s->nr = nr;
  return true;
}

void SeenThreads::add(int tid, ProcFolder* tasks) {
  if (count_ == kMost) return;
  SeenThread* t = &threads_[count_];
  char name[32], text[8192];
  t->tid = tid;
  t->processor_ns = processor_time(tid);
  if (!read_syscall(tasks, tid, &t->call) || t->call.nr < 0) return;
  format(name, sizeof(name), "%d/status", tid);
  if (tasks->read(name, text, sizeof(text)) <= 0) return;
  t->status = parse_status(text, own_text_);
  const char* s = status_field(text, "voluntary_ctxt_switches:");
  t->sleeps = scan_dec(&s);
  if (!t->processor_ns || t->processor_ns != processor_time(tid)) return;
  by_tid_.add(static_cast<uint64_t>(tid), count_++);
}

void SeenThreads::look(const int* own, int own_count) {
  forget();
  constexpr uint64_t kTable = kMost * sizeof(SeenThread);
  memory_ = scratch_map(kTable + HashIndex::bytes_for(2 * kMost));
  if (!memory_) return;
  threads_ = reinterpret_cast<SeenThread*>(memory_.data());
  by_tid_ = HashIndex(reinterpret_cast<uint32_t*>(memory_.data() + kTable), 2 * kMost);
  ProcFolder tasks{"/proc/self/task"};
  tasks.open();
  char name[32];
  format(name, sizeof(name), "%d/status", own[0]);
  if (tasks.read(name, own_text_, sizeof(own_text_)) > 0) {
    own_ = parse_status(own_text_, own_text_);
    struct Scan {
      SeenThreads* self;
      ProcFolder* tasks;
      const int* own;
      int own_count;
    } scan{this, &tasks, own, own_count};
    each_number_in("/proc/self/task", &scan, [](void* c, int tid) {
      const Scan* s = static_cast<const Scan*>(c);
      for (int i = 0; i < s->own_count; ++i)
        if (s->own[i] == tid) return true;
      s->self->add(tid, s->tasks);
      return true;
    });
  }
  tasks.close();
}

void SeenThreads::forget() {
  scratch_unmap(&memory_);
  threads_ = nullptr;
  count_ = 0;
  by_tid_ = {};
}

const SeenThread* SeenThreads::of(int tid) const {
  const uint32_t i =
      by_tid_.find(static_cast<uint64_t>(tid), [&](uint32_t k) { return threads_[k].tid == tid; });
  if (i == HashIndex::kNone || threads_[i].processor_ns != processor_time(tid)) return nullptr;
  return &threads_[i];
}

}  // namespace gpuckpt
