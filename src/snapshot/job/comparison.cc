#include "snapshot/job/comparison.h"

#include <errno.h>
#include <linux/capability.h>

#include "base/syscall.h"
#include "snapshot/control/state.h"
#include "snapshot/job/barrier.h"

namespace gpuckpt {
namespace {

constexpr uint64_t kAnswerPatienceUs =
    2000000;  // the answering process may have been slow to start
constexpr uint64_t kLookAgainUs = 1000;

long kernel_compares(int pid, int fd, int other_pid, int other_fd) {
  return sys::call(SYS_kcmp, pid, other_pid, 0 /* KCMP_FILE */, fd, other_fd);
}

// Takes the question back. True: no process had begun to answer it.
bool take_back(Comparison* c) {
  uint32_t asked = Comparison::kAsked;
  return c->stage.compare_exchange_strong(asked, Comparison::kFree);
}

}  // namespace

bool may_compare_all() {
  __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  return !sys::failed(sys::call(SYS_capget, sys::ptr(&head), sys::ptr(data))) &&
         data[0].effective >> CAP_SYS_PTRACE & 1;
}

long compare_descriptors(int fd, int other_pid, int other_fd) {
  const long own = kernel_compares(library.pid, fd, other_pid, other_fd);
  SharedJobState* b = job_barrier.shared_state();
  Comparison* c = &b->comparison;
  if (own != -EPERM || !b->strong || c->stage != Comparison::kFree) return own;
  c->pid[0] = library.pid, c->fd[0] = fd;
  c->pid[1] = other_pid, c->fd[1] = other_fd;
  c->stage = Comparison::kAsked;
  sys::futex_wake(&c->stage, 1, true);
  const uint64_t until = sys::now_us() + kAnswerPatienceUs;
  for (uint32_t stage; (stage = c->stage) != Comparison::kAnswered;) {
    // (A process that died while it answered leaves the stage as it is: no process asks again in
    // this attempt.)
    if (sys::now_us() > until && (take_back(c) || sys::now_us() > until + kAnswerPatienceUs))
      return own;
    sys::futex_wait(&c->stage, stage, kLookAgainUs, true);
  }
  const long answer = c->answer;
  c->stage = Comparison::kFree;
  return answer;
}

void answer_comparisons(uint64_t us) {
  Comparison* c = &job_barrier.shared_state()->comparison;
  uint32_t asked = Comparison::kAsked;
  if (!c->stage.compare_exchange_strong(asked, Comparison::kBeingAnswered)) {
    sys::futex_wait(&c->stage, asked, us, true);
    return;
  }
  c->answer = kernel_compares(c->pid[0], c->fd[0], c->pid[1], c->fd[1]);
  c->stage = Comparison::kAnswered;
  sys::futex_wake(&c->stage, 1, true);
}

}  // namespace gpuckpt
