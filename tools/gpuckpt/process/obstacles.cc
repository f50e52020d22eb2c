#include "process/obstacles.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "process/process.h"

namespace gpuckpt::cli {

using store::Status;

namespace {

std::vector<int> threads_of(int pid) {
  std::vector<int> out;
  std::error_code error;
  for (const auto& task :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), error))
    out.push_back(atoi(task.path().filename().c_str()));
  return out;
}

int number_in(int pid, const char* field) { return atoi(status_field(pid, field).c_str()); }

Status refused_for_filter(int pid) {
  return Status::Refused(fmt::format(
      "process {} ({}) has set a system call filter (seccomp) under which it would not survive a "
      "snapshot",
      pid, status_field(pid, "Name")));
}

// Whether our own process traces it that reads its memory after `restore --lazy`. It lets each call
// begin as soon as the pages are there, which may take until all are.
bool is_traced_by_pager(int pid) {
  const int tracer = number_in(pid, "TracerPid");
  return tracer != 0 && status_field(tracer, "Name") == wire::kPagerName;
}

bool is_stopped_by_debugger(int pid) {
  return status_field(pid, "State").starts_with("t") && !is_traced_by_pager(pid);
}

Status refused_for_debugger(int pid) {
  const int tracer = number_in(pid, "TracerPid");
  return Status::Refused(
      fmt::format("process {} is stopped by a debugger (process {}, {}): let it go on, or detach",
                  pid, tracer, status_field(tracer, "Name")));
}

// Whether all threads block the signal. No call of libc blocks it for longer than a moment.
bool blocks_wake_signal(int pid) {
  for (int tid : threads_of(pid))
    if (!(strtoull(status_field(tid, "SigBlk").c_str(), nullptr, 16) >> (wire::kWakeSignal - 1) &
          1))
      return false;
  return true;
}

}  // namespace

Status may_be_signalled(int pid) {
  if (proc_file(pid, "maps").find("/vgpreload_") != std::string::npos)
    return Status::Refused(fmt::format(
        "process {} ({}) runs under valgrind, which allows no threads but those of libc: run it "
        "without",
        pid, status_field(pid, "Name")));
  for (int tid : threads_of(pid))
    if (number_in(tid, "Seccomp") == 1)
      return Status::Refused(fmt::format(
          "thread {} of process {} ({}) is in strict seccomp mode, in which the signal that stops "
          "it would kill it",
          tid, pid, status_field(pid, "Name")));
  return is_stopped_by_debugger(pid) ? refused_for_debugger(pid) : Status::Ok();
}

Status why_deaf(int pid) {
  if (number_in(pid, "Seccomp") != 0) return refused_for_filter(pid);
  return Status::Refused(fmt::format(
      "process {} has libgpuckpt.so loaded, but it does not listen: it is still starting, or was "
      "built for another gpuckpt, or uses Syscall User Dispatch (prctl), under which it would not "
      "survive the signal for a snapshot, or has a malloc of its own that does not work before its "
      "main function",
      pid));
}

Status has_descriptors_to_answer(int pid) {
  constexpr unsigned long kEnough = 5;  // 0, 1, 2, a listening socket and a connection
  std::istringstream limits(proc_file(pid, "limits"));
  for (std::string line; std::getline(limits, line);)
    if (unsigned long most;
        sscanf(line.c_str(), "Max open files %lu", &most) == 1 && most < kEnough)
      return Status::Refused(fmt::format(
          "process {} ({}) cannot answer: its limit on open descriptors (RLIMIT_NOFILE, "
          "`ulimit -n`) is {}",
          pid, status_field(pid, "Name"), most));
  return Status::Ok();
}

Status why_silent(int pid, uint64_t silent_ms) {
  if (Status status = has_descriptors_to_answer(pid); !status.ok()) return status;
  if (is_stopped_by_debugger(pid)) return refused_for_debugger(pid);
  if (is_traced_by_pager(pid)) return Status::Ok();
  std::string where;
  for (int tid : threads_of(pid)) {
    if (!status_field(tid, "State").starts_with("D")) {
      where.clear();
      break;
    }
    where = proc_file(tid, "wchan");
  }
  if (!where.empty())
    return Status(
        kExitTimeout,
        fmt::format("process {} ({}) waits inside the kernel (state D, {}) and takes no signals: a "
                    "child started with vfork, or a disk that does not answer?",
                    pid, status_field(pid, "Name"), where));
  bool deaf = blocks_wake_signal(pid);
  for (int looks = 0; deaf && looks < 5; ++looks) {
    usleep(50'000);
    deaf = blocks_wake_signal(pid);
  }
  if (deaf)
    return Status::Refused(fmt::format(
        "all threads of process {} ({}) block signal {}, by a system call that libc does not know "
        "of (rt_sigprocmask): leave signals 32 and 33 out of the mask, or use pthread_sigmask",
        pid, status_field(pid, "Name"), wire::kWakeSignal));
  // A container's filter is no reason by itself: on a busy machine an answer can take this long.
  constexpr uint64_t kFilterMs = 10'000;
  if (silent_ms > kFilterMs && number_in(pid, "Seccomp") != 0) return refused_for_filter(pid);
  return Status::Ok();
}

namespace {

// Ticks of a thread in its own code and in the kernel.
struct Ticks {
  uint64_t user = 0, kernel = 0;
};

Ticks ticks_of(int tid) {
  Ticks out;
  const std::string stat = proc_file(tid, "stat");
  const size_t name_ends = stat.rfind(')');
  if (name_ends != std::string::npos)
    sscanf(stat.c_str() + name_ends, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
           &out.user, &out.kernel);
  return out;
}

// Calls that move much data at once, or wait for a disk.
std::string name_of_call(int number) {
  static const std::map<int, const char*> names = {{0, "read"},
                                                   {1, "write"},
                                                   {9, "mmap"},
                                                   {11, "munmap"},
                                                   {17, "pread64"},
                                                   {18, "pwrite64"},
                                                   {19, "readv"},
                                                   {20, "writev"},
                                                   {25, "mremap"},
                                                   {26, "msync"},
                                                   {28, "madvise"},
                                                   {40, "sendfile"},
                                                   {74, "fsync"},
                                                   {75, "fdatasync"},
                                                   {76, "truncate"},
                                                   {77, "ftruncate"},
                                                   {87, "unlink"},
                                                   {149, "mlock"},
                                                   {151, "mlockall"},
                                                   {162, "sync"},
                                                   {187, "readahead"},
                                                   {275, "splice"},
                                                   {277, "sync_file_range"},
                                                   {285, "fallocate"},
                                                   {295, "preadv"},
                                                   {296, "pwritev"},
                                                   {306, "syncfs"},
                                                   {326, "copy_file_range"}};
  const auto found = names.find(number);
  return found == names.end() ? std::to_string(number)
                              : fmt::format("{} ({})", number, found->second);
}

}  // namespace

std::string what_keeps(int pid) {
  const std::vector<int> threads = threads_of(pid);
  if (threads.empty()) return "";
  const int tid = threads[0];
  const Ticks before = ticks_of(tid);
  const std::string who = fmt::format(": thread {} ({})", tid, status_field(tid, "Name"));
  constexpr int kLooks = 20;
  for (int i = 0; i < kLooks; ++i) {
    int call = -1;
    if (sscanf(proc_file(tid, "syscall").c_str(), "%d", &call) == 1 && call >= 0)
      return fmt::format("{} is in system call {}, which lets no signal through", who,
                         name_of_call(call));
    usleep(10'000);
  }
  const Ticks after = ticks_of(tid);
  if (after.user == before.user && after.kernel > before.kernel)
    return who + " is in a system call that lets no signal through";
  return " (stopped, or busy with another snapshot?)";
}

}  // namespace gpuckpt::cli
