#include "snapshot/io/session.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdint>

#include "base/files/session_folder.h"
#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/log.h"
#include "base/text/text.h"
#include "snapshot/control/state.h"

namespace gpuckpt {
namespace {

bool make_folder(const char* dir, uint32_t me, char* fault, size_t fault_room) {
  // The application's umask may take even the owner's permissions away.
  if (!sys::failed(sys::call(SYS_mkdirat, AT_FDCWD, sys::ptr(dir), 0700)))
    sys::call(SYS_fchmodat, AT_FDCWD, sys::ptr(dir), 0700);
  struct stat st;
  session_folder_fault(dir, me, fault, fault_room);
  return !fault[0] && !sys::failed(sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(dir), sys::ptr(&st),
                                             AT_SYMLINK_NOFOLLOW));
}

bool make_one_of(const SessionSettings& settings, uint32_t me, char* dir, size_t room, char* fault,
                 size_t fault_room) {
  for (unsigned i = 0; session_folder(settings, me, i, dir, room); ++i)
    if (make_folder(dir, me, fault, fault_room)) return true;
  return false;
}

// The number of this user in the namespace outside of this one, where commands look for it; the
// same number when there is no other namespace.
uint32_t user_outside(uint32_t me) {
  char map[1024];
  if (read_file("/proc/thread-self/uid_map", map, sizeof(map)) <= 0) return me;
  for (const char* s = map; *s;) {
    uint64_t numbers[3];  // inside, outside, how many
    for (uint64_t& n : numbers) {
      while (*s == ' ' || *s == '\n') ++s;
      if (*s < '0' || *s > '9') return me;
      n = scan_dec(&s);
    }
    if (me >= numbers[0] && me - numbers[0] < numbers[2])
      return static_cast<uint32_t>(numbers[1] + me - numbers[0]);
  }
  return me;
}

}  // namespace

bool make_session_folder(char* dir, size_t room) {
  const SessionSettings settings{library.config.session_dir, library.config.runtime_dir};
  const uint32_t me = static_cast<uint32_t>(sys::call(SYS_geteuid));
  char fault[96] = "";
  if (make_one_of(settings, me, dir, room, fault, sizeof(fault))) return true;
  if (settings.session_dir[0]) {
    if (make_one_of({nullptr, settings.runtime_dir}, me, dir, room, fault, sizeof(fault))) {
      log_line(LogLevel::kInfo, "GPUCKPT_SESSION_DIR (%s) cannot be used any more; listening in %s",
               settings.session_dir, dir);
      return true;
    }
  }
  // In a user namespace that was made over the same files, /tmp/gpuckpt-0 is the real root's.
  if (const uint32_t outside = user_outside(me); outside != me) {
    char its_fault[96], its_folder[32];
    format(its_folder, sizeof(its_folder), "/tmp/gpuckpt-%u", outside);
    if (make_folder(its_folder, me, its_fault, sizeof(its_fault))) {
      copy(dir, room, its_folder);
      return true;
    }
  }
  static constinit bool is_told = false;  // a command asks several times
  if (is_told) return false;
  is_told = true;
  log_line(LogLevel::kWarn,
           "the session folder %s %s: gpuckpt's commands cannot reach this process; set "
           "GPUCKPT_SESSION_DIR to a folder of user %u's own before it starts",
           dir, fault[0] ? fault : "cannot be made", me);
  return false;
}

}  // namespace gpuckpt
