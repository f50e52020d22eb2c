// The kernel knows the inode of an inotify watch, not its name. So the names by which the program
// asks for watches are remembered.

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>

#include "base/heap.h"
#include "base/syscall.h"
#include "base/text.h"
#include "snapshot/descriptors/descriptors.h"

namespace gpuckpt {
namespace {

struct Watched {
  Watched* next;
  uint64_t dev, ino;
  int watch;
  char path[];
};
std::atomic<Watched*> watched{nullptr};

void remember(int watch, const char* path) {
  struct stat st;
  if (sys::failed(sys::call(SYS_newfstatat, -100, sys::ptr(path), sys::ptr(&st), 0))) return;
  char folder[4096];
  long n = path[0] == '/' ? 0 : sys::call(SYS_getcwd, sys::ptr(folder), sizeof(folder));
  if (n < 0) return;
  size_t room = static_cast<size_t>(n) + length(path) + 2;
  Watched* w = static_cast<Watched*>(heap_alloc(sizeof(Watched) + room));
  if (!w) return;
  w->dev = st.st_dev, w->ino = st.st_ino, w->watch = watch;
  if (n > 0)
    format(w->path, room, "%s/%s", folder, path);
  else
    copy(w->path, room, path);
  for (Watched* o = watched; o; o = o->next)
    if (o->watch == watch && o->dev == w->dev && o->ino == w->ino && equal(o->path, w->path)) {
      heap_free(w);
      return;
    }
  w->next = watched;
  while (!watched.compare_exchange_weak(w->next, w)) {
  }
}

}  // namespace

const char* watched_path(int watch, uint64_t dev, uint64_t ino) {
  const char* same_number = nullptr;
  for (const Watched* w = watched; w; w = w->next) {
    if (w->dev == dev && w->ino == ino) return w->path;
    // Some file systems (overlays) show other numbers in fdinfo than in stat.
    if (w->watch == watch && !same_number) same_number = w->path;
  }
  return same_number;
}

}  // namespace gpuckpt

extern "C" __attribute__((visibility("default"))) int inotify_add_watch(int fd, const char* path,
                                                                        uint32_t mask) noexcept {
  static int (*real)(int, const char*, uint32_t);
  if (!real)
    real = reinterpret_cast<int (*)(int, const char*, uint32_t)>(
        dlsym(RTLD_NEXT, "inotify_add_watch"));
  int watch = real(fd, path, mask);
  if (watch >= 0) gpuckpt::remember(watch, path);
  return watch;
}
