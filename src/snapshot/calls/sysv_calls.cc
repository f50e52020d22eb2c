#include "snapshot/calls/sysv_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/msg.h>
#include <sys/sem.h>

#include <atomic>
#include <cstddef>

#include "snapshot/calls/semaphore_undo.h"

namespace gpuckpt {
namespace {

// --- which ones

constexpr size_t kMostNumbers = 4096;
constexpr uint64_t kRemoved = ~0ull;  // an entry that may be used again
// Kind << 32 | number; 0: never used. A number is found from its own place onwards.
std::atomic<uint64_t> numbers[kMostNumbers];
std::atomic<bool> any_number, too_many_numbers;  // most programs use none

uint64_t entry_of(SysvKind kind, int number) {
  return static_cast<uint64_t>(kind) << 32 | static_cast<uint32_t>(number);
}

template <typename Each>
void look_for(uint64_t entry, Each each) {
  for (size_t tries = 0, at = entry % kMostNumbers; tries < kMostNumbers;
       ++tries, at = (at + 1) % kMostNumbers)
    if (!each(&numbers[at])) return;
}

void note(SysvKind kind, int number) {
  const uint64_t entry = entry_of(kind, number);
  any_number = true;
  bool known = false;
  std::atomic<uint64_t>* removed = nullptr;
  look_for(entry, [&](std::atomic<uint64_t>* place) {
    uint64_t found = place->load();
    if (found == kRemoved && !removed) removed = place;
    if (found == 0 && !removed) place->compare_exchange_strong(found, entry);
    known = found == entry || (found == 0 && place->load() == entry);
    return !known && (found != 0 || !removed);
  });
  if (known) return;
  uint64_t free = kRemoved;
  if (!removed)
    too_many_numbers = true;
  else if (!removed->compare_exchange_strong(free, entry))
    note(kind, number);  // another thread was faster
}

void forget(SysvKind kind, int number) {
  const uint64_t entry = entry_of(kind, number);
  look_for(entry, [&](std::atomic<uint64_t>* place) {
    uint64_t found = entry;
    place->compare_exchange_strong(found, kRemoved);
    return found != 0;
  });
}

// Noted before the call: the thread may be parked when it has just happened.
int operate(int set, struct sembuf* operations, size_t count, bool timed,
            const struct timespec* timeout) {
  note(SysvKind::kSemaphores, set);
  const int result = operate_on_semaphores(set, operations, count, timed, timeout);
  const bool gone = errno == EIDRM || (errno == EINVAL && count > 0 && !timed);
  if (result < 0 && gone) forget(SysvKind::kSemaphores, set);
  return result;
}

template <typename Fn>
Fn real(const char* name) {
  return reinterpret_cast<Fn>(dlsym(RTLD_NEXT, name));
}

int note_made(SysvKind kind, int number) {
  if (number >= 0) note(kind, number);
  return number;
}

}  // namespace

bool each_sysv_number(void* context, bool (*each)(void*, SysvKind, int)) {
  if (!any_number) return true;
  for (const std::atomic<uint64_t>& n : numbers)
    if (const uint64_t entry = n; entry && entry != kRemoved)
      if (!each(context, static_cast<SysvKind>(entry >> 32), static_cast<int>(entry))) return false;
  return true;
}

bool more_sysv_than_noted() { return too_many_numbers; }

}  // namespace gpuckpt

#define INTERPOSED extern "C" __attribute__((visibility("default")))

INTERPOSED int semget(key_t key, int count, int flags) noexcept {
  static int (*down)(key_t, int, int);
  if (!down) down = gpuckpt::real<decltype(down)>("semget");
  return gpuckpt::note_made(gpuckpt::SysvKind::kSemaphores, down(key, count, flags));
}

INTERPOSED int semop(int set, struct sembuf* operations, size_t count) noexcept {
  return gpuckpt::operate(set, operations, count, false, nullptr);
}

INTERPOSED int semtimedop(int set, struct sembuf* operations, size_t count,
                          const struct timespec* timeout) noexcept {
  return gpuckpt::operate(set, operations, count, true, timeout);
}

// libc's takes its fourth argument only where a command has one; a register that is not read does
// no harm.
INTERPOSED int semctl(int set, int number, int command, ...) noexcept {
  static int (*down)(int, int, int, ...);
  if (!down) down = gpuckpt::real<decltype(down)>("semctl");
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  const int result = down(set, number, command, argument);
  if (result >= 0 && command == IPC_RMID) gpuckpt::forget(gpuckpt::SysvKind::kSemaphores, set);
  if (result >= 0) gpuckpt::note_undo_control(set, number, command);
  return result;
}

INTERPOSED int msgget(key_t key, int flags) noexcept {
  static int (*down)(key_t, int);
  if (!down) down = gpuckpt::real<decltype(down)>("msgget");
  return gpuckpt::note_made(gpuckpt::SysvKind::kQueue, down(key, flags));
}

INTERPOSED int msgsnd(int queue, const void* message, size_t bytes, int flags) {
  static int (*down)(int, const void*, size_t, int);
  if (!down) down = gpuckpt::real<decltype(down)>("msgsnd");
  const int result = down(queue, message, bytes, flags);
  if (result == 0) gpuckpt::note(gpuckpt::SysvKind::kQueue, queue);
  return result;
}

INTERPOSED ssize_t msgrcv(int queue, void* message, size_t bytes, long type, int flags) {
  static ssize_t (*down)(int, void*, size_t, long, int);
  if (!down) down = gpuckpt::real<decltype(down)>("msgrcv");
  const ssize_t result = down(queue, message, bytes, type, flags);
  if (result >= 0) gpuckpt::note(gpuckpt::SysvKind::kQueue, queue);
  return result;
}

INTERPOSED int msgctl(int queue, int command, struct msqid_ds* state) noexcept {
  static int (*down)(int, int, struct msqid_ds*);
  if (!down) down = gpuckpt::real<decltype(down)>("msgctl");
  const int result = down(queue, command, state);
  if (result >= 0 && command == IPC_RMID) gpuckpt::forget(gpuckpt::SysvKind::kQueue, queue);
  return result;
}
