#include "snapshot/descriptors/half_read.h"

#include <fcntl.h>
#include <linux/magic.h>

#include <initializer_list>

#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/process/warnings.h"

namespace gpuckpt {

constinit HalfRead half_read;

namespace {

using process::Descriptor;

constexpr uint64_t kPatienceUs = 1'000'000;

// What lies at an offset of these does not depend on what was read before.
bool is_read_by_position(const char* path) {
  for (const char* name : {"/mem", "/pagemap", "/environ", "/auxv", "/cmdline"})
    if (ends_with(path, name)) return true;
  for (const char* name : {"/proc/kcore", "/proc/kpage", "/proc/config.gz", "/proc/bus/"})
    if (starts_with(path, name)) return true;
  return false;
}

bool has_text(const Descriptor& d, const char* path, uint32_t file_system) {
  if (!S_ISREG(d.mode) || d.flags & O_PATH || (d.flags & O_ACCMODE) == O_WRONLY) return false;
  switch (file_system) {
    case CGROUP_SUPER_MAGIC:
    case CGROUP2_SUPER_MAGIC:
    case TRACEFS_MAGIC:
    case DEBUGFS_MAGIC:
      return true;
    case SYSFS_MAGIC:  // all texts have one size; files of bytes have their own, or 0
      return d.size == 4096;
    case PROC_SUPER_MAGIC:
      return !is_read_by_position(path);
    default:
      return false;
  }
}

// Reads one byte to where nothing can be written. The kernel makes the next line, if it does not
// have it yet, fails to copy it, and neither the offset nor the line is lost. 0: nothing is left.
long try_to_read(const Descriptor& d) {
  static const char kReadOnly = 0;
  return sys::call(SYS_pread64, d.fd, sys::ptr(&kReadOnly), 1, static_cast<long>(d.offset));
}

}  // namespace

bool HalfRead::look_at(FdTable* t, Descriptor* d, const char* path, uint32_t file_system) {
  if (!d->offset || !has_text(*d, path, file_system)) return true;
  const long left = try_to_read(*d);
  d->value[1] = left == 0;
  if (left != -14 /* EFAULT */) return true;
  met_ = true;
  const uint64_t now = sys::now_us();
  if (!since_us_) since_us_ = now;
  if (now - since_us_ < kPatienceUs)
    return t->c->refuse_for_now("descriptor %d is in the middle of %s; try again when it is read",
                                d->fd, path);
  add_warning(
      "descriptor %d is in the middle of %s, which the kernel writes anew for each reader: after a "
      "restore, what is read next may not continue what was read before",
      d->fd, path);
  return true;
}

}  // namespace gpuckpt
