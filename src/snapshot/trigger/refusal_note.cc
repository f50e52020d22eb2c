#include "snapshot/trigger/refusal_note.h"

#include <fcntl.h>

#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "gpuckpt/wire.h"
#include "snapshot/control/state.h"
#include "snapshot/io/session.h"

namespace gpuckpt {

namespace {

constexpr size_t kFolder = sizeof(library.config.session_dir);

struct NotePath {
  char text[kFolder + 64];

  bool make(int pid, uint64_t started) {
    char folder[kFolder];
    if (!make_session_folder(folder, sizeof(folder))) return false;
    format(text, sizeof(text), "%s/%d-%lu%s", folder, pid, started, wire::kNoteEnding);
    return true;
  }
};

}  // namespace

void leave_refusal_note(const char* text) {
  NotePath path;
  if (!path.make(library.host_pid, host_start_time())) return;
  sys::call(SYS_unlinkat, AT_FDCWD, sys::ptr(path.text), 0);
  sys::call(SYS_symlinkat, sys::ptr(text), AT_FDCWD, sys::ptr(path.text));
}

bool take_refusal_note(int pid, char* text, size_t room) {
  NotePath path;
  if (!path.make(pid, start_time_of(pid))) return false;
  const long n = sys::call(SYS_readlinkat, AT_FDCWD, sys::ptr(path.text), sys::ptr(text),
                           static_cast<long>(room - 1));
  if (n <= 0) return false;
  text[n] = 0;
  sys::call(SYS_unlinkat, AT_FDCWD, sys::ptr(path.text), 0);
  return true;
}

}  // namespace gpuckpt
