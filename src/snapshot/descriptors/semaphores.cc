// System V semaphores that the program has changed with SEM_UNDO. The kernel undoes that when the
// program is killed and shows it nowhere, and a restored program continues as if it still had them:
// the calls of libc, which come through us, are where we learn what is to be told.

#include "snapshot/descriptors/semaphores.h"

#include <dlfcn.h>
#include <sys/sem.h>

#include <atomic>

#include "base/syscall.h"
#include "snapshot/process/warnings.h"

namespace gpuckpt {
namespace {

constexpr size_t kMost = 1024;
// What SEM_UNDO would do, summed over all calls since the start, because the kernel does not tell.
// Nothing is ever removed: a set that is gone is recognised when it is told of.
struct Undo {
  std::atomic<uint64_t> semaphore;  // 1 + set << 16 | number
  std::atomic<int> change;          // what the kernel would add
} undos[kMost];
std::atomic<bool> too_many;  // for the table: snapshots are refused

void note(uint64_t semaphore, int change) {
  for (size_t tries = 0, at = semaphore % kMost; tries < kMost; ++tries, at = (at + 1) % kMost) {
    uint64_t found = 0;
    if (undos[at].semaphore.compare_exchange_strong(found, semaphore) || found == semaphore) {
      undos[at].change -= change;
      return;
    }
  }
  too_many = true;
}

int note_all(int result, int set, const struct sembuf* operations, size_t count) {
  for (size_t i = 0; result == 0 && i < count; ++i)
    if (operations[i].sem_flg & SEM_UNDO && operations[i].sem_op)
      note(1 + (static_cast<uint64_t>(static_cast<uint32_t>(set)) << 16 | operations[i].sem_num),
           operations[i].sem_op);
  return result;
}

template <typename Fn>
Fn real(const char* name) {
  return reinterpret_cast<Fn>(dlsym(RTLD_NEXT, name));
}

}  // namespace

void forget_semaphores() {
  for (Undo& u : undos) u.semaphore = 0, u.change = 0;
  too_many = false;
}

void warn_of_semaphores() {
  for (const Undo& u : undos) {
    const uint64_t semaphore = u.semaphore - 1;
    if (!u.semaphore || !u.change) continue;
    const int set = static_cast<int>(semaphore >> 16),
              number = static_cast<int>(semaphore & 0xffff);
    if (sys::failed(sys::call(SYS_semctl, set, number, GETVAL, 0))) continue;
    add_warning(
        "semaphore %d of the System V set %d was changed with SEM_UNDO: a kill undoes that, and a "
        "restore does not do it again",
        number, set);
  }
  if (too_many)
    add_warning(
        "many System V semaphores were changed with SEM_UNDO: a kill undoes that, and a restore "
        "does not do it again");
}

}  // namespace gpuckpt

#define INTERPOSED extern "C" __attribute__((visibility("default")))

INTERPOSED int semop(int set, struct sembuf* operations, size_t count) noexcept {
  static int (*down)(int, struct sembuf*, size_t);
  if (!down) down = gpuckpt::real<int (*)(int, struct sembuf*, size_t)>("semop");
  return gpuckpt::note_all(down(set, operations, count), set, operations, count);
}

INTERPOSED int semtimedop(int set, struct sembuf* operations, size_t count,
                          const struct timespec* timeout) noexcept {
  static int (*down)(int, struct sembuf*, size_t, const struct timespec*);
  if (!down)
    down =
        gpuckpt::real<int (*)(int, struct sembuf*, size_t, const struct timespec*)>("semtimedop");
  return gpuckpt::note_all(down(set, operations, count, timeout), set, operations, count);
}
