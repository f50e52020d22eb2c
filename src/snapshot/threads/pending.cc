#include "snapshot/threads/pending.h"

#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/control/state.h"
#include "snapshot/park/park.h"
#include "snapshot/process/capture.h"
#include "snapshot/threads/thread_status.h"
#include "snapshot/threads/tracer.h"

namespace gpuckpt {

using namespace process;

namespace {

constexpr size_t kMaxPending = 65536;  // signals that wait, of the process and of all threads
constexpr uint64_t kAll = ~kSignalsOfLibc;
constexpr long kPeekSiginfo = 0x4209;  // PTRACE_*
constexpr uint32_t kOfTheProcess = 1;
constexpr int kFromTimer = -2;  // SI_TIMER

// Of what a siginfo_t says: where it lies as the kernel copies it.
struct SignalHead {
  int signal, error, code, pad;
  int timer, overrun;
  uint64_t value;
  int private_to_kernel;
};
// The queues in which signals wait, and which signals were found there.
struct Waiting {
  int tid;  // 0: the process's
  uint64_t bits;
  size_t first, count;
};

struct Pending {
  Region memory, queue_memory;
  PendingSignal* info;
  size_t count = 0;
  Waiting* queue;
  size_t queues = 0;
  int any_thread = 0;
  bool looked;  // by the tracer, at all of them
};

// Finds out which queues have a signal at all.
void find_queues(Pending* p, const ThreadStatuses& statuses) {
  p->queue[p->queues++] = {};
  p->queue[0].bits = statuses.own().process_pending & kAll;
  for (size_t i = 0; i < parking.count(); ++i) {
    const ThreadStatus& status = statuses.of(i);
    if (!status.known) continue;
    p->any_thread = parking.thread(i).tid;
    p->queue[0].bits |= status.process_pending & kAll;
    if (const uint64_t bits = status.pending & kAll)
      p->queue[p->queues++] = {p->any_thread, bits, 0, 0};
  }
}

bool none_waits(const ThreadStatuses& statuses) {
  uint64_t bits = statuses.own().process_pending;
  for (size_t i = 0; i < parking.count(); ++i)
    if (const ThreadStatus& status = statuses.of(i); status.known)
      bits |= status.pending | status.process_pending;
  return !(bits & kAll);
}

// In the tracer. 0: all of the queue has been read.
struct Look {
  Pending* pending;
  Waiting* queue;
};
long look_at(int tid, void* argument) {
  Pending* p = static_cast<Look*>(argument)->pending;
  Waiting* q = static_cast<Look*>(argument)->queue;
  struct {
    uint64_t from;
    uint32_t flags;
    int32_t most;
  } which{0, q->tid ? 0 : kOfTheProcess, 0};
  q->first = p->count;
  for (;;) {
    which.most = static_cast<int32_t>(kMaxPending - p->count);
    if (which.most <= 0) return -7;  // E2BIG
    const long got =
        sys::call(SYS_ptrace, kPeekSiginfo, tid, sys::ptr(&which), sys::ptr(p->info + p->count));
    if (sys::failed(got)) return got;
    if (got == 0) break;
    which.from += static_cast<uint64_t>(got);
    size_t kept = p->count;
    for (size_t i = p->count; i < p->count + static_cast<size_t>(got); ++i)
      if (1ull << (p->info[i].signal - 1) & kAll) p->info[kept++] = p->info[i];
    p->count = kept;
  }
  q->count = p->count - q->first;
  return 0;
}

void look_at_all(void* argument) {
  Pending* p = static_cast<Pending*>(argument);
  p->looked = true;
  for (size_t i = 0; p->looked && i < p->queues; ++i) {
    Look look{p, &p->queue[i]};
    if (!look.queue->bits) continue;
    const int tid = look.queue->tid ? look.queue->tid : p->any_thread;
    p->looked = !sys::failed(trace_thread(tid, look_at, &look));
  }
}

// A signal for which the kernel had no room to keep more than its number says nothing else.
bool add_bare_ones(Pending* p) {
  for (size_t k = p->queues; k-- > 0;) {
    Waiting& q = p->queue[k];
    uint64_t bare = q.bits;
    for (size_t i = 0; i < q.count; ++i) bare &= ~(1ull << (p->info[q.first + i].signal - 1));
    if (!bare) continue;
    // They come after those of their queue, which others may follow.
    const size_t more = static_cast<size_t>(__builtin_popcountll(bare)), at = q.first + q.count;
    if (p->count + more > kMaxPending) return false;
    __builtin_memmove(p->info + at + more, p->info + at, (p->count - at) * sizeof(PendingSignal));
    size_t to = at;
    for (int signal = 1; signal <= 64; ++signal)
      if (bare >> (signal - 1) & 1) {
        __builtin_memset(&p->info[to], 0, sizeof(PendingSignal));
        p->info[to++].signal = signal;
      }
    q.count += more, p->count += more;
    for (size_t i = 0; i < p->queues; ++i)
      if (i != k && p->queue[i].first >= at && p->queue[i].count) p->queue[i].first += more;
  }
  return true;
}

// The signal of a timer that was set anew or deleted since may be one that the kernel drops when it
// is taken; only taking it tells. That harms no timer that expires once.
bool some_may_be_void(Pending* p) {
  for (size_t i = 0; i < p->count; ++i) {
    SignalHead head;
    __builtin_memcpy(&head, &p->info[i], sizeof(head));
    if (head.code != kFromTimer) continue;
    int64_t spec[4] = {};
    if (sys::failed(sys::call(SYS_timer_gettime, head.timer, sys::ptr(spec)))) return true;
    const bool repeats = spec[0] || spec[1];
    const bool expires_later = spec[2] > spec[0] || (spec[2] == spec[0] && spec[3] > spec[1]);
    if (!repeats || expires_later) return true;
    head.private_to_kernel = 0;
    __builtin_memcpy(&p->info[i], &head, sizeof(head));
  }
  return false;
}

bool look_without_taking(Pending* p) {
  p->looked = false;
  return p->any_thread && run_as_tracer(look_at_all, p) && p->looked && add_bare_ones(p) &&
         !some_may_be_void(p);
}

// Takes them out and puts them back. Those of the process come out first, so that what a thread
// then finds is its own.
bool take_and_queue_again(Pending* p) {
  uint64_t all = kAll;
  sys::Timespec none{0, 0};
  size_t n = 0;
  while (n < kMaxPending / 2 && sys::call(SYS_rt_sigtimedwait, sys::ptr(&all),
                                          sys::ptr(&p->info[n]), sys::ptr(&none), 8) > 0)
    ++n;
  p->queue[0].first = 0, p->queue[0].count = p->count = n;
  bool ok = n < kMaxPending / 2;
  for (size_t k = 1; k < p->queues; ++k) {
    Waiting& q = p->queue[k];
    q.first = p->count, q.count = 0;
    for (size_t i = 0; ok && i < parking.count(); ++i) {
      if (parking.thread(i).tid != q.tid || parking.thread(i).state != kParked) continue;
      q.count = parking.collect_pending(i, q.bits, p->info + p->count, kMaxPending - p->count);
      ok = q.count < kMaxPending - p->count;
    }
    p->count += q.count;
  }
  // By our own number, which stands for the process here: a thread may claim another origin for a
  // signal (si_code) only to itself.
  for (size_t i = 0; i < n; ++i)
    sys::call(SYS_rt_sigqueueinfo, sys::gettid(), p->info[i].signal, sys::ptr(&p->info[i]));
  return ok;
}

void put(const Pending& p, Records* r) {
  for (size_t k = 1; k < p.queues; ++k) {
    const Waiting& q = p.queue[k];
    ThreadPending head{q.tid, 0};
    r->begin(kRecThreadPending, static_cast<uint32_t>(q.count));
    r->add(&head, sizeof(head));
    r->add(p.info + q.first, q.count * sizeof(PendingSignal));
    r->end();
  }
  r->begin(kRecPending, static_cast<uint32_t>(p.queue[0].count));
  r->add(p.info + p.queue[0].first, p.queue[0].count * sizeof(PendingSignal));
  r->end();
}

}  // namespace

bool put_pending(Capture* c, Records* r, const ThreadStatuses& statuses) {
  if (none_waits(statuses)) {
    r->begin(kRecPending, 0);
    r->end();
    return true;
  }
  Pending p{};
  p.memory = scratch_map(kMaxPending * sizeof(PendingSignal));
  p.queue_memory = scratch_map((parking.count() + 1) * sizeof(Waiting));
  bool ok = p.memory && p.queue_memory;
  if (ok) {
    p.info = reinterpret_cast<PendingSignal*>(p.memory.data());
    p.queue = reinterpret_cast<Waiting*>(p.queue_memory.data());
    find_queues(&p, statuses);
    ok = look_without_taking(&p) || take_and_queue_again(&p);
    if (ok)
      put(p, r);
    else
      c->refuse("more than %lu signals are pending", kMaxPending / 2);
  } else {
    c->refuse("no memory for the list of pending signals");
  }
  scratch_unmap(&p.memory);
  scratch_unmap(&p.queue_memory);
  return ok;
}

}  // namespace gpuckpt
