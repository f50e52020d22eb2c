#include "snapshot/park/park.h"

#include <asm/prctl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/api/device_plugin.h"
#include "snapshot/calls/signal_stacks.h"
#include "snapshot/control/state.h"
#include "snapshot/park/continued_wait.h"
#include "snapshot/park/raw_thread.h"

namespace gpuckpt {

// One for the process: the signal handler has no other way to find it.
constinit Parking parking;

namespace {

// A thread that does nothing but ask for the time is nearly always in the vdso. An attempt takes
// some 20 us.
constexpr int kMostAgain = 1000;

// Futex words, odd while threads shall stay. The first thread has one of its own: the kernel gives
// it the signals of the process, and so it parks last and leaves first.
std::atomic<uint32_t> phase{0}, first_phase{0};

std::atomic<uint32_t>& phase_of(int tid) { return tid == library.pid ? first_phase : phase; }
// Threads count their answers; only the one that makes them enough wakes the coordinator. With a
// thousand threads it would do nothing but wake up otherwise.
std::atomic<uint32_t> answers{0}, enough{0};
std::atomic<uint32_t> woken{0};                      // futex word
std::atomic<uint64_t> table_start{0}, table_end{0};  // of ParkedThread, for the handler
sys::Sigaction before;                               // glibc's own action for the signal

// Work for one parked thread: only a thread itself can take out what waits for it alone.
struct Collect {
  std::atomic<ParkedThread*> thread;
  uint64_t mask;
  PendingSignal* to;
  size_t room, count;
} collect;

void wake_coordinator() {
  ++woken;
  sys::futex_wake(&woken, 1);
}

void answer() {
  if (static_cast<int32_t>(++answers - enough) >= 0) wake_coordinator();
}

// What the coordinator has heard. To be taken before threads are asked, or looked at: what they say
// from then on ends the wait for it.
struct Heard {
  uint32_t answers, woken;
};
Heard heard_so_far() { return {answers, woken}; }

// Until `count` more answers have come than were heard, or something else has; 1 ms at most.
void await_answers_since(const Heard& heard, size_t count) {
  enough = heard.answers + static_cast<uint32_t>(count);
  if (static_cast<int32_t>(answers - enough) < 0) sys::futex_wait(&woken, heard.woken, 1000);
}

void collect_own() {
  sys::Timespec none{0, 0};
  size_t n = 0;
  while (n < collect.room && sys::call(SYS_rt_sigtimedwait, sys::ptr(&collect.mask),
                                       sys::ptr(&collect.to[n]), sys::ptr(&none), 8) > 0)
    ++n;
  int tid = sys::gettid();
  for (size_t i = 0; i < n; ++i)
    sys::call(SYS_rt_tgsigqueueinfo, library.pid, tid, collect.to[i].signal,
              sys::ptr(&collect.to[i]));
  collect.count = n;
  collect.thread = nullptr;
  wake_coordinator();
}

// Is the thread still in the call, or at the end of it?
bool is_in_call(const ucontext_t& uc, const SyscallState& call) {
  const greg_t* r = uc.uc_mcontext.gregs;
  const uint64_t pc = static_cast<uint64_t>(r[REG_RIP]);
  return call.nr >= 0 && (pc == call.pc || pc == call.pc - 2) &&
         static_cast<uint64_t>(r[REG_RSP]) == call.sp;
}

// How often the calling thread has gone to sleep.
uint64_t own_sleeps() {
  constexpr int kOfThread = 1;  // RUSAGE_THREAD
  struct rusage usage {};
  sys::call(SYS_getrusage, kOfThread, sys::ptr(&usage));
  return static_cast<uint64_t>(usage.ru_nvcsw);
}

void park_handler(int sig, siginfo_t* info, void* context) {
  uint64_t slot = reinterpret_cast<uint64_t>(info->si_value.sival_ptr);
  if (info->si_code != SI_QUEUE || slot < table_start || slot >= table_end ||
      reinterpret_cast<ParkedThread*>(slot)->tid != sys::gettid()) {
    // Asked by a stop that was given up so long ago that its table is gone.
    if (info->si_code == SI_QUEUE)
      continue_call(static_cast<ucontext_t*>(context), info);
    else if (before.handler > 1)
      reinterpret_cast<void (*)(int, siginfo_t*, void*)>(before.handler)(sig, info, context);
    return;
  }
  ParkedThread* t = reinterpret_cast<ParkedThread*>(slot);
  std::atomic<uint32_t>& stay = phase_of(t->tid);
  const uint32_t now = stay;
  t->context = static_cast<ucontext_t*>(context);
  const bool same_call = is_in_call(*t->context, t->before);
  // The call that our signal interrupted continues, also when the stop failed. The thread may have
  // entered it between the look at it and the signal: then only the code tells which it is.
  t->call_end = repair_call(t->context, t->before);
  if (!(now & 1)) {  // asked too late: the coordinator has given up
    end_call_if_signalled(t->context, t->call_end, false);
    t->state = kLeft;
    return;
  }
  const uint64_t pc = static_cast<uint64_t>(t->context->uc_mcontext.gregs[REG_RIP]);
  t->unmoved = same_call && t->seen && t->seen->sleeps == own_sleeps();
  t->in_vdso = library.vdso.start <= pc && pc < library.vdso.end;
  if (t->in_vdso && t->asked_again < kMostAgain) {
    ++t->asked_again;
    t->state = kAgain;
    wake_coordinator();
    return;
  }
  t->info = info;
  if (t->call_end == CallEnd::kAlways && !t->driver) continue_wait(t->context, info);
  take_parked_time(t->context);
  sys::call(SYS_arch_prctl, ARCH_GET_FS, sys::ptr(&t->fs));
  sys::call(SYS_arch_prctl, ARCH_GET_GS, sys::ptr(&t->gs));
  sys::call(SYS_get_robust_list, 0, sys::ptr(&t->robust_head), sys::ptr(&t->robust_bytes));
  sys::call(SYS_prctl, PR_GET_TID_ADDRESS, sys::ptr(&t->clear_tid));
  sys::call(SYS_prctl, PR_GET_NAME, sys::ptr(t->name));
  sys::call(SYS_prctl, PR_GET_PDEATHSIG, sys::ptr(&t->death_signal));
  t->timer_slack = static_cast<uint64_t>(sys::call(SYS_prctl, PR_GET_TIMERSLACK));
  const long bits = sys::call(SYS_prctl, PR_GET_SECUREBITS);
  t->securebits = sys::failed(bits) ? 0 : static_cast<uint32_t>(bits);
  t->rseq = own_rseq(t->fs);
  t->rare = rare_thread_state();
  t->choices = own_thread_choices();
  t->memory_policy = 0;
  sys::call(SYS_get_mempolicy, sys::ptr(&t->memory_policy), sys::ptr(t->memory_nodes), 1024, 0, 0);
  t->state = kParked;
  answer();
  while (stay == now) {
    if (collect.thread == t) collect_own();
    sys::futex_wait(&stay, now, 0);
  }
  take_parked_time(t->context);
  const CallEnd call_end = t->call_end;
  const bool alone = parking.count() == 1;
  ucontext_t* uc = t->context;
  const bool ended = end_call_if_signalled(uc, call_end, alone);
  // The coordinator frees the table when all have left: nothing of it may be touched after this
  // store.
  t->state = kLeft;
  answer();
  // Waking the coordinator takes time on a busy machine, in which another signal may have come.
  if (!ended) end_call_if_signalled(uc, call_end, alone);
}

void find_vdso() {
  char buffer[8192];
  LineReader lines("/proc/thread-self/maps", buffer, sizeof(buffer));
  MapsLine l;
  while (char* line = lines.next())
    if (parse_maps_line(line, &l) && equal(l.name, "[vdso]")) library.vdso = {l.start, l.end};
}

ProcFolder tasks{"/proc/self/task"};  // open while threads are asked to park

// As in /proc/PID/stat; 0: there is no such thread.
char task_state(int tid) {
  char path[64];
  ProcStat stat;
  format(path, sizeof(path), "/proc/self/task/%d/stat", tid);
  return read_stat(path, &stat) ? stat.state : 0;
}

// A thread of the driver that is just now executing code; 0: none. They have nothing to do any
// more, but one that did a moment ago (the last copy, a kernel that hashes) may still be on its way
// to sleep, or wait for a processor, and all threads parked for it would have to be released again.
int busy_driver_thread() {
  int busy = 0;
  if (device_plugin)
    each_number_in("/proc/self/task", &busy, [](void* found, int tid) {
      uint64_t pc, sp;
      SyscallState now;
      if (device_plugin->driver_thread(tid, &pc, &sp) && read_syscall(&tasks, tid, &now) &&
          now.nr < 0)
        *static_cast<int*>(found) = tid;
      return *static_cast<int*>(found) == 0;
    });
  return busy;
}

}  // namespace

sys::Sigaction parking_saved_action() { return before; }

void parking_forget() {
  if (phase & 1) ++phase;
  if (first_phase & 1) ++first_phase;
  table_start = table_end = 0;
  parking.forget();
}

bool Parking::knows(int tid) const {
  return by_tid_.find(static_cast<uint64_t>(tid), [&](uint32_t i) {
    return threads_[i].tid == tid && threads_[i].state != kGone;
  }) != HashIndex::kNone;
}

// True when the thread was not known yet.
bool Parking::ask(int tid) {
  if (knows(tid) || count_ == room_) return false;
  // A first thread that has ended is listed until the process ends; a signal would stay pending.
  if (tid == library.pid && !zombie_leader_) zombie_leader_ = task_state(tid) == 'Z';
  if (zombie_leader_ && tid == library.pid) return false;
  ParkedThread* t = &threads_[count_];
  t->tid = tid;
  by_tid_.add(static_cast<uint64_t>(tid), static_cast<uint32_t>(count_++));
  send(t);
  return true;
}

void Parking::send(ParkedThread* t) {
  const int tid = t->tid;
  t->state = kAsked;
  if ((t->seen = seen_.of(tid)))
    t->before = t->seen->call;
  else
    read_syscall(&tasks, tid, &t->before);
  t->driver = device_plugin && device_plugin->driver_thread(tid, &t->resume_pc, &t->resume_sp);
  siginfo_t info;
  __builtin_memset(&info, 0, sizeof(info));
  info.si_signo = kParkSignal;
  info.si_code = SI_QUEUE;
  info.si_pid = library.pid;
  info.si_value.sival_ptr = t;
  if (sys::failed(sys::call(SYS_rt_tgsigqueueinfo, library.pid, tid, kParkSignal, sys::ptr(&info))))
    t->state = kGone;
}

bool Parking::begin() {
  constexpr uint64_t kTable = kMostParked * sizeof(ParkedThread);
  memory_ = scratch_map(kTable + HashIndex::bytes_for(2 * kMostParked));
  if (!memory_) return false;
  threads_ = reinterpret_cast<ParkedThread*>(memory_.data());
  by_tid_ = HashIndex(reinterpret_cast<uint32_t*>(memory_.data() + kTable), 2 * kMostParked);
  count_ = 0;
  room_ = kMostParked;
  zombie_leader_ = false;
  table_start = memory_.start;
  table_end = memory_.start + kTable;
  if (!library.vdso.end) find_vdso();
  ++phase, ++first_phase;

  sys::Sigaction mine{reinterpret_cast<uint64_t>(park_handler),
                      SA_SIGINFO | SA_RESTART | signal_stack_flag() | 0x04000000,
                      reinterpret_cast<uint64_t>(gpuckpt_sigreturn), ~0ull};
  sys::Sigaction old{};
  sys::sigaction(kParkSignal, &mine, &old);
  if (old.handler != mine.handler) before = old;
  return true;
}

// Asks each thread that was not asked before, the first one only `with_first`. False: there is
// none.
bool Parking::ask_new_threads(const int* own, int own_count, bool with_first) {
  struct Scan {
    Parking* self;
    const int* own;
    int own_count;
    bool with_first, found;
  } scan{this, own, own_count, with_first, false};
  each_number_in("/proc/self/task", &scan, [](void* c, int tid) {
    Scan* s = static_cast<Scan*>(c);
    for (int i = 0; i < s->own_count; ++i)
      if (s->own[i] == tid) return true;
    if (tid == library.pid && !s->with_first) return true;
    s->found |= s->self->ask(tid);
    return true;
  });
  return scan.found;
}

// A thread that ended (or a leader that is a zombie) will not answer.
void Parking::forget_ended() {
  for (size_t i = 0; i < count_; ++i) {
    if (threads_[i].state != kAsked) continue;
    const char s = task_state(threads_[i].tid);
    if (s == 'Z' && threads_[i].tid == library.pid) zombie_leader_ = true;
    if (s == 0 || s == 'Z' || s == 'X') threads_[i].state = kGone;
  }
}

// Waits until all threads that were asked have answered, or for the deadline. Returns the thread id
// of one that has not; 0: all have.
int Parking::await_answers(uint64_t deadline_us) {
  for (size_t spins = 0;; ++spins) {
    const Heard heard = heard_so_far();
    size_t waiting = 0;
    int missing = 0;
    for (size_t i = 0; i < count_; ++i) {
      if (threads_[i].state == kAgain) send(&threads_[i]);
      if (threads_[i].state == kAsked) ++waiting, missing = threads_[i].tid;
    }
    if (!waiting || sys::now_us() > deadline_us) return missing;
    if (spins >= 4 && waiting <= 16) forget_ended();
    await_answers_since(heard, waiting);
  }
}

namespace {

bool blocks_park_signal(int tid) {
  char path[64], status[4096];
  format(path, sizeof(path), "/proc/self/task/%d/status", tid);
  if (read_file(path, status, sizeof(status)) <= 0) return false;
  const char* mask = status_field(status, "SigBlk:");
  while (*mask == ' ' || *mask == '\t') ++mask;
  return scan_hex(&mask) >> (kParkSignal - 1) & 1;
}

void name_late(int tid, bool blocked, uint64_t timeout_us, char* text, size_t room) {
  char name[64] = "?", path[64];
  SyscallState now{};
  read_syscall(&tasks, tid, &now);
  format(path, sizeof(path), "/proc/self/task/%d/comm", tid);
  const long n = read_file(path, name, sizeof(name));
  if (n > 0 && name[n - 1] == '\n') name[n - 1] = 0;
  const char state = task_state(tid);
  if (now.nr == SYS_clone || now.nr == SYS_vfork || now.nr == SYS_clone3)
    format(text, room, "thread %d (%s) waits for a child that it started with vfork", tid, name);
  else if (blocked)
    format(text, room,
           "thread %d (%s) blocks signal %d, by a system call that libc does not know of "
           "(rt_sigprocmask): leave signals 32 and 33 out of its mask, or use pthread_sigmask",
           tid, name, kParkSignal);
  else
    format(text, room,
           "thread %d (%s) could not be stopped within %lu ms (state %c, system call %ld)", tid,
           name, timeout_us / 1000, state ? state : '?', now.nr);
}

}  // namespace

void Parking::look_before_stop(const int* own, int own_count) { seen_.look(own, own_count); }

bool Parking::park(const int* own, int own_count, uint64_t timeout_us, char* text, size_t room) {
  tasks.open();
  const bool parked = park_all(own, own_count, timeout_us, text, room);
  tasks.close();
  return parked;
}

bool Parking::park_all(const int* own, int own_count, uint64_t timeout_us, char* text,
                       size_t room) {
  blocked_ = false;
  const uint64_t patience = sys::now_us() + timeout_us / 2;
  while (busy_driver_thread() && sys::now_us() < patience) sys::sleep_us(200);
  if (!begin()) {
    format(text, room, "no memory for the table of threads");
    return false;
  }
  const uint64_t deadline = sys::now_us() + timeout_us;
  for (bool more = true, first = false; more;) {
    more = ask_new_threads(own, own_count, first);
    const int missing = await_answers(deadline);
    more |= missing != 0 || !first;
    first |= !missing;
    if (!more || sys::now_us() <= deadline) continue;
    blocked_ = missing && blocks_park_signal(missing);
    name_late(missing, blocked_, timeout_us, text, room);
    unpark();
    return false;
  }
  for (size_t i = 0; i < count_; ++i) {
    ParkedThread& t = threads_[i];
    if (t.state != kParked || !t.driver || t.before.nr >= 0) continue;
    format(text, room, "a thread of the driver (%d) was not inside a system call", t.tid);
    unpark();
    return false;
  }
  return true;
}

size_t Parking::collect_pending(size_t i, uint64_t mask, PendingSignal* to, size_t room) {
  collect.mask = mask, collect.to = to, collect.room = room, collect.count = 0;
  collect.thread = &threads_[i];
  while (collect.thread) {
    const uint32_t seen = woken;
    sys::futex_wake(&phase_of(threads_[i].tid), 0x7fffffff);
    if (collect.thread) sys::futex_wait(&woken, seen, 1000);
  }
  return collect.count;
}

const ParkedThread* Parking::first() const {
  for (size_t i = 0; i < count_; ++i)
    if (threads_[i].tid == library.pid)
      return threads_[i].state == kParked ? &threads_[i] : nullptr;
  return nullptr;
}

const ParkedThread* Parking::any_of_program() const {
  for (size_t i = 0; i < count_; ++i)
    if (threads_[i].state == kParked && !threads_[i].driver) return &threads_[i];
  return nullptr;
}

// The first thread, unless it blocks the signal, as the kernel does; else any that does not.
int Parking::thread_for(int sig) const {
  const auto takes = [sig](const ParkedThread& t) {
    return t.state == kParked && !(blocked_in(*t.context) >> (sig - 1) & 1);
  };
  if (const ParkedThread* t = first(); t && takes(*t)) return t->tid;
  for (size_t i = 0; i < count_; ++i)
    if (takes(threads_[i])) return threads_[i].tid;
  return 0;
}

// Until the first thread has left; not for long.
void Parking::await_first() const {
  constexpr int kMostMs = 5;
  for (int ms = 0; ms < kMostMs; ++ms) {
    const Heard heard = heard_so_far();
    if (!first() || count_ == 1) return;
    await_answers_since(heard, 1);
  }
}

void Parking::unpark() {
  if (count_ > 1) direct_signals([](int sig) { return parking.thread_for(sig); });
  ++first_phase;
  sys::futex_wake(&first_phase, 1);
  await_first();
  ++phase;
  sys::futex_wake(&phase, 0x7fffffff);
  // A thread that was asked but never answered runs the handler later, when the table must not be
  // there; the handler recognises that by the range.
  uint64_t patience = sys::now_us() + 100000;
  for (;;) {
    const Heard heard = heard_so_far();
    size_t waiting = 0;
    const bool patient = sys::now_us() < patience;
    for (size_t i = 0; i < count_; ++i)
      waiting += threads_[i].state == kParked || (patient && threads_[i].state == kAsked);
    if (!waiting) break;
    await_answers_since(heard, waiting);
  }
  bool stragglers = false;
  for (size_t i = 0; i < count_; ++i) stragglers |= threads_[i].state == kAsked;
  table_start = table_end = 0;
  // With a thread that has not answered, our handler stays installed (it passes on whatever is not
  // ours), and the next stop finds it in place.
  if (!stragglers) {
    sys::Sigaction now{};
    sys::sigaction(kParkSignal, nullptr, &now);
    if (now.handler == reinterpret_cast<uint64_t>(park_handler))
      sys::sigaction(kParkSignal, &before, nullptr);
  }
  scratch_unmap(&memory_);
  threads_ = nullptr;
  count_ = 0;
}

}  // namespace gpuckpt
