#include "restore/pager/traced_program.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/address.h"
#include "base/procfs/proc.h"
#include "base/text/text.h"

namespace gpuckpt::restore {

using store::Status;

namespace {

// A signal's frame: the red zone, registers, and the processor's state, with room for what the
// handler itself passes to the kernel on its stack.
constexpr uint64_t kFrame = 64 << 10;
constexpr int kRestartBlock = 516, kRestart = 512;  // ERESTARTSYS to ERESTART_RESTARTBLOCK

int64_t now_ms() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<int64_t>(t.tv_sec) * 1000 + t.tv_nsec / 1000000;
}

long trace(int request, pid_t tid, uint64_t address, uint64_t data) {
  return ptrace(static_cast<__ptrace_request>(request), tid, address, data);
}

// True also of a first thread that has ended before the others.
bool has_ended(pid_t pid, pid_t tid) {
  ProcStat stat;
  return !read_stat_of_thread(pid, tid, &stat) || stat.ended();
}

uint64_t signals_in(const char* status, const char* field) {
  const char* text = status_field(status, field);
  return scan_hex(&text);
}

}  // namespace

void TracedProgram::supply(uint64_t address, uint64_t bytes) {
  if (address + bytes > address && !pages_->supply(address, address + bytes)) failed_ = true;
}

bool TracedProgram::read(uint64_t address, void* to, size_t bytes) {
  supply(address, bytes);
  iovec local{to, bytes}, remote{reinterpret_cast<void*>(address), bytes};
  return process_vm_readv(pid_, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

bool TracedProgram::supply_for(const std::vector<process::Thread>& threads) {
  for (const process::Thread& t : threads) {
    if (t.ucontext) {
      supply(t.ucontext - kFrame, 2 * kFrame);
      stack_t alternative{};
      if (read(t.ucontext + offsetof(ucontext_t, uc_stack), &alternative, sizeof(alternative)) &&
          !(alternative.ss_flags & SS_DISABLE) && alternative.ss_size <= 64 << 20)
        supply(reinterpret_cast<uint64_t>(alternative.ss_sp), alternative.ss_size);
    }
    if (t.resume_sp) supply(t.resume_sp - kFrame, 2 * kFrame);
    supply(t.fs - kPage, 2 * kPage);
    supply(t.robust_head, 24);
    supply(t.clear_tid, 4);
    supply(t.rseq, t.rseq_bytes);
  }
  return !failed_;
}

bool TracedProgram::seize_new_threads(bool* some) {
  constexpr uint64_t kOptions = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL;
  *some = false;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid_) + "/task", error)) {
    const auto tid = static_cast<pid_t>(atoi(entry.path().filename().c_str()));
    if (tracees_.count(tid)) continue;
    if (trace(PTRACE_SEIZE, tid, 0, kOptions) != 0) {
      const int reason = errno;
      if (has_ended(pid_, tid)) continue;
      errno = reason;
      return false;
    }
    // Its next stop makes it stop at each call.
    tracees_[tid];
    trace(PTRACE_INTERRUPT, tid, 0, 0);
    *some = true;
  }
  return !error;
}

Status TracedProgram::attach() {
  tracer_ = gettid();
  for (bool some = true; some;)
    if (!seize_new_threads(&some)) {
      const int reason = errno;
      for (auto& [tid, t] : tracees_) {
        int status;
        if (waitpid(tid, &status, __WALL) == tid && WIFSTOPPED(status))
          trace(PTRACE_DETACH, tid, 0, 0);
      }
      tracees_.clear();
      return Status::Refused(std::string("the program cannot be traced: ") + strerror(reason));
    }
  for (const auto& [first, t] : std::map(tracees_)) {
    int status;
    if (waitpid(first, &status, __WALL) != first) continue;
    stopped(first, status);
  }
  return Status::Ok();
}

void TracedProgram::resume(pid_t tid, Tracee* t, int request) {
  const int signal = t->signal;
  t->signal = 0;
  t->stopped = false;
  trace(request, tid, 0, static_cast<uint64_t>(signal));
}

bool TracedProgram::may_begin(CallMay may) const {
  return may == CallMay::kBegin || (may == CallMay::kBeginWhenThere && all_there_) || is_over();
}

void TracedProgram::stopped_at_call(pid_t tid, Tracee* t) {
  __ptrace_syscall_info info{};
  if (trace(PTRACE_GET_SYSCALL_INFO, tid, sizeof(info), reinterpret_cast<uint64_t>(&info)) <= 0)
    return;  // killed
  t->in_call = info.op == PTRACE_SYSCALL_INFO_ENTRY;
  if (t->in_call && t->shortened && info.entry.nr == t->call.number)
    return resume(tid, t, PTRACE_SYSCALL);
  if (t->in_call) t->shortened = false;
  if (t->in_call) {
    t->began_ms = now_ms();
    t->call.number = info.entry.nr;
    memcpy(t->call.arguments, info.entry.args, sizeof(t->call.arguments));
    t->call.stack = info.stack_pointer;
    t->call.thread = tid;
    t->may = supply_for_call(t->call, this);
    if (may_let_go(tid)) return let_go(tid, t);
    if (may_begin(t->may)) resume(tid, t, PTRACE_SYSCALL);
    return;
  }
  const auto result = static_cast<long>(info.exit.rval);
  const bool begin_again = result == -EINTR && !signal_waits(tid);
  if ((begin_again || t->shortened) && !begin_call_again(tid, t, begin_again)) failed_ = true;
  // The kernel continues the call itself once the thread has seen the interruption, which is its
  // next stop.
  if (t->interrupted && -result >= kRestart && -result <= kRestartBlock)
    return resume(tid, t, PTRACE_CONT);
  if (may_let_go(tid) && !t->shortened) return let_go(tid, t);
  resume(tid, t, PTRACE_SYSCALL);
}

// The call was interrupted by its tracer, or, because it has one, by a signal that the program
// ignores: it goes on with the time that is left. At its end (not `again`) the register with the
// time gets its old value.
bool TracedProgram::begin_call_again(pid_t tid, Tracee* t, bool again) {
  user_regs_struct registers;
  iovec place{&registers, sizeof(registers)};
  if (trace(PTRACE_GETREGSET, tid, 1 /* NT_PRSTATUS */, reinterpret_cast<uint64_t>(&place)) != 0)
    return errno == ESRCH;
  registers.r10 = t->call.arguments[3];
  t->shortened = again && has_time_out_in_ms(t->call);
  if (t->shortened) {
    const int64_t left = static_cast<int>(t->call.arguments[3]) - (now_ms() - t->began_ms);
    registers.r10 = static_cast<uint64_t>(std::max<int64_t>(left, 0));
  }
  if (again) {
    registers.rip -= 2;  // the instruction `syscall`
    registers.rax = t->call.number;
  }
  return trace(PTRACE_SETREGSET, tid, 1, reinterpret_cast<uint64_t>(&place)) == 0 || errno == ESRCH;
}

// Whether a signal waits for which the program has a handler.
bool TracedProgram::signal_waits(pid_t tid) const {
  char path[64], status[4096];
  snprintf(path, sizeof(path), "/proc/%d/task/%d/status", pid_, tid);
  if (read_file(path, status, sizeof(status)) <= 0) return true;
  const uint64_t pending = signals_in(status, "SigPnd:") | signals_in(status, "ShdPnd:");
  return (pending & ~signals_in(status, "SigBlk:") & signals_in(status, "SigCgt:")) != 0;
}

void TracedProgram::stopped_by_signal(pid_t tid, Tracee* t, int signal) {
  __ptrace_syscall_info info{};
  if (trace(PTRACE_GET_SYSCALL_INFO, tid, sizeof(info), reinterpret_cast<uint64_t>(&info)) > 0)
    supply(info.stack_pointer - kFrame, kFrame + kPage);
  t->signal = signal;
  if (may_let_go(tid)) return let_go(tid, t);
  resume(tid, t, PTRACE_SYSCALL);
}

void TracedProgram::stopped(pid_t tid, int status) {
  if (!WIFSTOPPED(status)) {
    tracees_.erase(tid);
    return;
  }
  // A new thread may come before its maker says so.
  if (!tracees_.count(tid)) came_first_.insert(tid);
  Tracee* t = &tracees_[tid];
  t->stopped = true;
  const int signal = WSTOPSIG(status), event = status >> 16;
  if (signal == (SIGTRAP | 0x80)) return stopped_at_call(tid, t);
  if (event == 0) return stopped_by_signal(tid, t, signal);
  t->in_call = false;
  if (event == PTRACE_EVENT_CLONE) {
    unsigned long made = 0;
    trace(PTRACE_GETEVENTMSG, tid, 0, reinterpret_cast<uint64_t>(&made));
    if (!came_first_.erase(static_cast<pid_t>(made))) tracees_[static_cast<pid_t>(made)];
  }
  if (may_let_go(tid)) return let_go(tid, t);
  // A job-control stop goes on until SIGCONT comes.
  const bool job_control = event == PTRACE_EVENT_STOP && signal != SIGTRAP;
  resume(tid, t, job_control ? PTRACE_LISTEN : PTRACE_SYSCALL);
}

void TracedProgram::let_go(pid_t tid, Tracee* t) {
  trace(PTRACE_DETACH, tid, 0, static_cast<uint64_t>(t->signal));
  tracees_.erase(tid);
}

void TracedProgram::begin_waiting_calls() {
  for (auto it = tracees_.begin(); it != tracees_.end();) {
    auto& [tid, t] = *it++;
    if (t.stopped && t.in_call && may_begin(t.may)) resume(tid, &t, PTRACE_SYSCALL);
  }
}

// It ends soon by itself, and its caller would wait anew if it were interrupted.
bool TracedProgram::is_left_alone(const Tracee& t) {
  return t.shortened ||
         (!t.stopped && t.in_call && ends_when_interrupted(t.call) && has_time_out(t.call));
}

// Whether a thread may be let go. The first thread is before all others: as long as it is traced, a
// signal that the program ignores (SIGCHLD) interrupts the calls of any thread.
bool TracedProgram::may_let_go(pid_t tid) const {
  if (!is_over()) return false;
  const auto first = tracees_.find(pid_);
  return tid == pid_ || first == tracees_.end() || is_left_alone(first->second);
}

void TracedProgram::interrupt_all() {
  for (auto it = tracees_.begin(); it != tracees_.end();) {
    auto& [tid, t] = *it++;
    if (t.interrupted || is_left_alone(t) || !may_let_go(tid)) continue;
    t.interrupted = true;
    if (t.stopped)
      let_go(tid, &t);
    else
      trace(PTRACE_INTERRUPT, tid, 0, 0);
  }
}

void TracedProgram::all_there() {
  all_there_ = true;
  while (!knows_) {
    tgkill(getpid(), tracer_, SIGUSR2);
    usleep(200);
  }
}

void TracedProgram::forego() {
  knows_ = true;
  while (!all_there_) usleep(1000);
}

bool TracedProgram::run() {
  struct sigaction action {};
  action.sa_handler = [](int) {};  // without SA_RESTART: it ends waitpid()
  sigaction(SIGUSR2, &action, nullptr);
  while (!tracees_.empty() && !failed_) {
    if (all_there_) {
      knows_ = true;
      interrupt_all();
      begin_waiting_calls();
      if (tracees_.empty()) break;
    }
    int status;
    // Other processes' pagers say nothing when they are ready.
    const bool others = all_there_ && !is_over();
    const pid_t tid = waitpid(-1, &status, __WALL | (others ? WNOHANG : 0));
    if (tid > 0) stopped(tid, status);
    if (tid == 0) usleep(1000);
    if (tid < 0 && errno != EINTR) break;
  }
  knows_ = true;
  return !failed_;
}

}  // namespace gpuckpt::restore
