#include "snapshot/threads/tracer.h"

#include <linux/sched.h>
#include <sys/prctl.h>

#include "base/syscall.h"
#include "snapshot/park/raw_thread.h"

namespace gpuckpt {
namespace {

constexpr long kSeize = 0x4206, kInterrupt = 0x4207, kDetach = 17;
constexpr long kWaitAll = 0x40000000;

struct Task {
  void (*work)(void*);
  void* argument;
  bool ran;
};

void run_task(void* argument) {
  Task* task = static_cast<Task*>(argument);
  sys::call(SYS_prctl, PR_SET_NAME, sys::ptr("gpuckpt-look"));
  task->work(task->argument);
  task->ran = true;
  sys::exit_group(0);
}

alignas(64) char helper_stack[16 * 1024];

}  // namespace

bool run_as_tracer(void (*work)(void*), void* argument) {
  Task task{work, argument, false};
  const long pid =
      clone_raw(CLONE_VM, reinterpret_cast<uint64_t>(helper_stack + sizeof(helper_stack)), run_task,
                &task, nullptr, nullptr, nullptr);
  if (sys::failed(pid)) return false;
  sys::call(SYS_wait4, pid, 0, kWaitAll, 0);
  return task.ran;
}

long trace_thread(int tid, long (*question)(int tid, void* argument), void* argument) {
  const long seized = sys::call(SYS_ptrace, kSeize, tid, 0, 0);
  if (sys::failed(seized)) return seized;
  int status = 0;
  long answer = sys::call(SYS_ptrace, kInterrupt, tid, 0, 0);
  if (!sys::failed(answer))
    answer = sys::call(SYS_wait4, tid, sys::ptr(&status), kWaitAll, 0) == tid
                 ? question(tid, argument)
                 : -3 /* ESRCH */;
  sys::call(SYS_ptrace, kDetach, tid, 0, 0);
  return answer;
}

}  // namespace gpuckpt
