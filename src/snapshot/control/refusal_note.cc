#include "snapshot/control/refusal_note.h"

#include <fcntl.h>

#include "base/syscall.h"
#include "base/text.h"
#include "gpuckpt/wire.h"
#include "snapshot/control/session.h"
#include "snapshot/control/state.h"

namespace gpuckpt {

void leave_refusal_note(const char* text) {
  char folder[sizeof(library.config.session_dir)], path[sizeof(folder) + 64];
  if (!make_session_folder(folder, sizeof(folder))) return;
  format(path, sizeof(path), "%s/%d-%lu%s", folder, library.host_pid, host_start_time(),
         wire::kNoteEnding);
  sys::call(SYS_unlinkat, AT_FDCWD, sys::ptr(path), 0);
  sys::call(SYS_symlinkat, sys::ptr(text), AT_FDCWD, sys::ptr(path));
}

}  // namespace gpuckpt
