// Uses io_uring where there is one, and does without where there is none, as libuv does: says which
// in the file `way`. Every other system call that goes through syscall(2) of libc is as it was.
#include "../features/feature.h"

int main() {
  char parameters[120] = "";
  errno = 0;
  const long ring = syscall(425, 4, parameters);
  const int with_ring = ring >= 0;
  CHECK(with_ring || errno == ENOSYS || errno == EPERM);
  FILE* way = fopen("way", "w");
  fprintf(way, "%s\n", with_ring ? "ring" : "none");
  fclose(way);
  CHECK(syscall(SYS_getpid) == getpid());
  CHECK(syscall(SYS_gettid) == getpid());
  // Six arguments, and an error in errno.
  void* page = (void*)syscall(SYS_mmap, NULL, 4096L, 3L, 0x22L, -1L, 0L);
  CHECK(page != (void*)-1);
  CHECK(syscall(SYS_munmap, page, 4096L) == 0);
  errno = 0;
  CHECK(syscall(SYS_close, -1) == -1 && errno == EBADF);
  errno = 0;
  CHECK(syscall(99999) == -1 && errno == ENOSYS);
  ready_and_wait();
  return survived();
}
