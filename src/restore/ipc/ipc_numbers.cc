#include "restore/ipc/ipc_numbers.h"

#include <fcntl.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <unistd.h>

#include <string>

#include "base/descriptors/fd.h"

namespace gpuckpt::restore {

namespace {

// A number is an index and above it a sequence number. Indexes are given out one after the other,
// as far as they are free, and the sequence number grows by one when they begin anew, after 64 of
// them or half as many again as are in use (ipc_idr_alloc of Linux 5.2 to 6.18).
constexpr int kIndexBits = 15, kSequences = (1 << 16) - 1;
// A machine, and even more a container, that began a while ago has not come farther than that.
constexpr int kMostTurns = 1024, kMostTries = kMostTurns * 128;

// How often the indexes have begun anew when the number comes.
int turns_from(int made, int number) {
  const int turns = (number >> kIndexBits) - (made >> kIndexBits);
  return turns < 0 ? turns + kSequences : turns;
}

// With CAP_CHECKPOINT_RESTORE one can ask.
bool ask_for(IpcKind kind, int number) {
  const char* what = kind == IpcKind::kSegment ? "shm" : kind == IpcKind::kQueue ? "msg" : "sem";
  const std::string path = std::string("/proc/sys/kernel/") + what + "_next_id";
  Fd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  const std::string text = std::to_string(number);
  return fd && write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

void remove(IpcKind kind, int number) {
  if (kind == IpcKind::kSegment)
    shmctl(number, IPC_RMID, nullptr);
  else if (kind == IpcKind::kQueue)
    msgctl(number, IPC_RMID, nullptr);
  else
    semctl(number, 0, IPC_RMID);
}

}  // namespace

int make_with_number(IpcKind kind, int number, bool patient, const std::function<int()>& make) {
  const bool asked = ask_for(kind, number);
  int made = make();
  if (asked || !patient) return made;
  // Others are made and removed until its number comes.
  for (int tries = 0; made >= 0 && made != number && tries < kMostTries; ++tries) {
    if (turns_from(made, number) > kMostTurns) break;  // or it has just passed: another one has it
    remove(kind, made);
    made = make();
  }
  return made;
}

}  // namespace gpuckpt::restore
