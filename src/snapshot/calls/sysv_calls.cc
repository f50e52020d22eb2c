#include "snapshot/calls/sysv_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/msg.h>
#include <sys/sem.h>

#include <atomic>
#include <cstddef>

#include "base/syscall.h"

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

// --- what would be undone

constexpr size_t kMostUndos = 1024;
// The sum over all calls since the start, because the kernel does not tell. Nothing is ever
// removed: of a set that is gone no snapshot asks.
struct Undo {
  std::atomic<uint64_t> semaphore;  // 1 + set << 16 | number
  std::atomic<int> change;          // what the kernel would add
} undos[kMostUndos];
std::atomic<bool> too_many_undos;
// Calls with SEM_UNDO that have begun and are not noted. A thread that is parked in one has often
// just done it: the signal comes when the call returns.
std::atomic<int> undo_calls;

uint64_t semaphore_of(int set, int number) {
  return 1 +
         (static_cast<uint64_t>(static_cast<uint32_t>(set)) << 16 | static_cast<uint16_t>(number));
}

// Null: there is no room for one more.
Undo* find_undo(int set, int number, bool make) {
  const uint64_t semaphore = semaphore_of(set, number);
  for (size_t tries = 0, at = semaphore % kMostUndos; tries < kMostUndos;
       ++tries, at = (at + 1) % kMostUndos) {
    uint64_t found = undos[at].semaphore;
    if (!found && make) undos[at].semaphore.compare_exchange_strong(found, semaphore);
    if (found == semaphore || (!found && make)) return &undos[at];
    if (!found) return nullptr;
  }
  return nullptr;
}

bool has_undo(const struct sembuf* operations, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (operations[i].sem_flg & SEM_UNDO) return true;
  return false;
}

void note_operations(int set, const struct sembuf* operations, size_t count) {
  note(SysvKind::kSemaphores, set);
  for (size_t i = 0; i < count; ++i) {
    if (!(operations[i].sem_flg & SEM_UNDO) || !operations[i].sem_op) continue;
    if (Undo* u = find_undo(set, operations[i].sem_num, true))
      u->change -= operations[i].sem_op;
    else
      too_many_undos = true;
  }
}

template <typename Call>
int operate(int set, const struct sembuf* operations, size_t count, Call call) {
  const bool undo = operations && has_undo(operations, count);
  if (undo) ++undo_calls;
  const int result = call();
  const int error = errno;
  if (result == 0) note_operations(set, operations, count);
  if (undo) --undo_calls;
  errno = error;
  return result;
}

// To set a value ends what was to be undone, for all processes.
void note_control(int set, int number, int command) {
  if (command == IPC_RMID) forget(SysvKind::kSemaphores, set);
  if (command == SETVAL)
    if (Undo* u = find_undo(set, number, false)) u->change = 0;
  if (command == SETALL || command == IPC_RMID)
    for (Undo& u : undos)
      if (u.semaphore && (u.semaphore - 1) >> 16 == static_cast<uint32_t>(set)) u.change = 0;
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
bool more_undos_than_noted() { return too_many_undos; }
bool in_undo_call() { return undo_calls != 0; }

int undo_of(int set, int semaphore) {
  const Undo* u = find_undo(set, semaphore, false);
  return u ? u->change.load() : 0;
}

void forget_undos() {
  for (Undo& u : undos) u.semaphore = 0, u.change = 0;
  too_many_undos = false;
  undo_calls = 0;
}

// Both operations at once leave the value as it is, and only one of them is undone. The one that
// adds comes first, as no value is below 0.
bool redo(int set, int semaphore, int undo) {
  const auto number = static_cast<unsigned short>(semaphore);
  const auto change = static_cast<short>(undo);
  struct sembuf both[2] = {{number, change, 0}, {number, static_cast<short>(-change), SEM_UNDO}};
  if (change < 0) {
    const struct sembuf first = both[1];
    both[1] = both[0];
    both[0] = first;
  }
  return !sys::failed(sys::call(SYS_semop, set, sys::ptr(both), 2));
}

}  // namespace gpuckpt

#define INTERPOSED extern "C" __attribute__((visibility("default")))

INTERPOSED int semget(key_t key, int count, int flags) noexcept {
  static int (*down)(key_t, int, int);
  if (!down) down = gpuckpt::real<decltype(down)>("semget");
  return gpuckpt::note_made(gpuckpt::SysvKind::kSemaphores, down(key, count, flags));
}

INTERPOSED int semop(int set, struct sembuf* operations, size_t count) noexcept {
  static int (*down)(int, struct sembuf*, size_t);
  if (!down) down = gpuckpt::real<decltype(down)>("semop");
  return gpuckpt::operate(set, operations, count, [&] { return down(set, operations, count); });
}

INTERPOSED int semtimedop(int set, struct sembuf* operations, size_t count,
                          const struct timespec* timeout) noexcept {
  static int (*down)(int, struct sembuf*, size_t, const struct timespec*);
  if (!down) down = gpuckpt::real<decltype(down)>("semtimedop");
  return gpuckpt::operate(set, operations, count,
                          [&] { return down(set, operations, count, timeout); });
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
  if (result >= 0) gpuckpt::note_control(set, number, command);
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
