// The kernel knows the inode of an inotify watch, not its name. So the names by which the program
// asks for watches are remembered.

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <atomic>

#include "base/heap.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/calls/libc_wrappers.h"
#include "snapshot/descriptors/descriptors.h"
#include "snapshot/descriptors/hard_link.h"

namespace gpuckpt {
namespace {

struct Watched {
  Watched* next;
  uint64_t dev, ino;
  int watch;
  char path[];
};
// The names by which the program added its watches, noted at each call: the kernel does not keep
// them.
std::atomic<Watched*> watched{nullptr};

// The name that leads there whatever becomes of the links on the way, and of the descriptor that
// the program may have named it by (/proc/self/fd/5). 0: not known.
long place_of(const char* path, uint32_t mask, char* name, size_t room, struct stat* st) {
  const int follow = mask & IN_DONT_FOLLOW ? O_NOFOLLOW : 0;
  const int place = sys::open(path, O_PATH | O_CLOEXEC | follow);
  if (place < 0) return 0;
  char link[48];
  format(link, sizeof(link), "/proc/thread-self/fd/%d", place);
  long n = sys::call(SYS_readlinkat, AT_FDCWD, sys::ptr(link), sys::ptr(name),
                     static_cast<long>(room - 1));
  if (n < 0 || sys::failed(sys::call(SYS_fstat, place, sys::ptr(st)))) n = 0;
  sys::close(place);
  name[n] = 0;
  return name[0] == '/' ? n : 0;
}

void remember(int watch, const char* path, uint32_t mask) {
  struct stat st;
  char name[4097];
  if (!place_of(path, mask, name, sizeof(name), &st)) return;
  const size_t room = length(name) + 1;
  Watched* w = static_cast<Watched*>(heap_alloc(sizeof(Watched) + room));
  if (!w) return;
  w->dev = st.st_dev, w->ino = st.st_ino, w->watch = watch;
  copy(w->path, room, name);
  for (Watched* o = watched; o; o = o->next)
    if (o->watch == watch && o->dev == w->dev && o->ino == w->ino && equal(o->path, w->path)) {
      heap_free(w);
      return;
    }
  w->next = watched;
  while (!watched.compare_exchange_weak(w->next, w)) {
  }
}

const Watched* find(int watch, uint64_t dev, uint64_t ino) {
  const Watched* same_number = nullptr;
  for (const Watched* w = watched; w; w = w->next) {
    if (w->dev == dev && w->ino == ino) return w;
    // Some file systems (overlays) show other numbers in fdinfo than in stat.
    if (w->watch == watch && !same_number) same_number = w;
  }
  return same_number;
}

bool is_overlay(const char* path) {
  struct statfs fs;
  return !sys::failed(sys::call(SYS_statfs, sys::ptr(path), sys::ptr(&fs))) &&
         static_cast<uint32_t>(fs.f_type) == OVERLAYFS_SUPER_MAGIC;
}

}  // namespace

const char* watched_path(int watch, uint64_t dev, uint64_t ino, bool* leads_there) {
  static char now[4097];
  const Watched* w = find(watch, dev, ino);
  if (!w) return nullptr;
  struct stat st;
  const long r =
      sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(w->path), sys::ptr(&st), AT_SYMLINK_NOFOLLOW);
  *leads_there = !sys::failed(r) && (st.st_ino == ino || is_overlay(w->path));
  if (*leads_there) return w->path;
  copy(now, sizeof(now), w->path);
  st.st_dev = dev, st.st_ino = ino;
  *leads_there = find_hard_link(now, sizeof(now), st, LinkSearch::kFile);
  return *leads_there ? now : w->path;
}

}  // namespace gpuckpt

extern "C" __attribute__((visibility("default"))) int inotify_add_watch(int fd, const char* path,
                                                                        uint32_t mask) noexcept {
  const int watch = gpuckpt_real_inotify_add_watch(fd, path, mask);
  if (watch >= 0) gpuckpt::remember(watch, path, mask);
  return watch;
}

// By syscall(3) (libc_wrappers.cc).
extern "C" long gpuckpt_inotify_add_watch(long, int fd, const char* path, uint32_t mask) {
  return inotify_add_watch(fd, path, mask);
}
