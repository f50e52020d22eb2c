#include "snapshot/park/shared_work.h"

#include <linux/sched.h>

#include <atomic>

#include "base/heap.h"
#include "base/syscall.h"
#include "snapshot/park/raw_thread.h"

namespace gpuckpt {

namespace {

constexpr uint32_t kMostHelpers = 31;
constexpr uint64_t kStack = 64 << 10;

struct Work {
  uint32_t count, size;
  void* context;
  void (*body)(void* context, uint32_t begin, uint32_t end);
  std::atomic<uint32_t> next{0};

  void take_part() {
    for (uint32_t begin; (begin = next.fetch_add(size)) < count;)
      body(context, begin, count - begin < size ? count : begin + size);
  }
};

class Helpers {
 public:
  Helpers(Work* work, uint32_t wanted) {
    const uint32_t count = wanted < kMostHelpers ? wanted : kMostHelpers;
    if (count) stacks_ = scratch_map(count * kStack);
    if (!stacks_) return;
    const uint64_t old = sys::sigprocmask_all();
    while (count_ < count && start(work)) ++count_;
    sys::sigprocmask_set(old);
  }
  ~Helpers() {
    for (uint32_t i = 0; i < count_; ++i)
      for (uint32_t tid; (tid = tid_[i].load());) sys::futex_wait(&tid_[i], tid, 10000, true);
    if (stacks_) scratch_unmap(&stacks_);
  }
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

 private:
  bool start(Work* work) {
    constexpr uint64_t flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                               CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    int* tid = reinterpret_cast<int*>(&tid_[count_]);
    return !sys::failed(clone_raw(
        flags, stacks_.start + kStack * (count_ + 1),
        [](void* w) { static_cast<Work*>(w)->take_part(); }, work, tid, tid, nullptr));
  }

  Region stacks_;
  uint32_t count_ = 0;
  std::atomic<uint32_t> tid_[kMostHelpers]{};  // cleared and woken by the kernel at its end
};

}  // namespace

uint32_t allowed_processors() {
  uint64_t set[128];  // 8192 of them
  const long bytes = sys::call(SYS_sched_getaffinity, 0, sizeof(set), sys::ptr(set));
  uint32_t out = 0;
  for (long i = 0; i < bytes / 8; ++i) out += static_cast<uint32_t>(__builtin_popcountll(set[i]));
  return out ? out : 1;
}

void share_work(uint32_t count, uint32_t size, void* context,
                void (*body)(void* context, uint32_t begin, uint32_t end)) {
  Work work{count, size, context, body};
  const uint32_t pieces = (count + size - 1) / size, most = allowed_processors();
  const Helpers helpers(&work, (pieces < most ? pieces : most) - (pieces ? 1 : 0));
  work.take_part();
}

}  // namespace gpuckpt
