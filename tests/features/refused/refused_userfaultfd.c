// A program that serves its own missing pages: refused by name, and its userfaultfd goes on.
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include "feature.h"
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
static void* serve(void* argument) {
  int fd = *(int*)argument;
  struct uffd_msg m;
  CHECK(read(fd, &m, sizeof(m)) == sizeof(m) && m.event == UFFD_EVENT_PAGEFAULT);
  static char page[4096] __attribute__((aligned(4096))) = "served";
  struct uffdio_copy c = {m.arg.pagefault.address & ~4095ull, (uintptr_t)page, 4096, 0, 0};
  CHECK(ioctl(fd, UFFDIO_COPY, &c) == 0);
  return NULL;
}
int main(void) {
  int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
  CHECK(fd >= 0);
  struct uffdio_api api = {UFFD_API, 0, 0};
  CHECK(ioctl(fd, UFFDIO_API, &api) == 0);
  char* a = mmap(NULL, 64 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(a != MAP_FAILED);
  struct uffdio_register r = {{(uintptr_t)a, 4096}, UFFDIO_REGISTER_MODE_MISSING, 0};
  CHECK(ioctl(fd, UFFDIO_REGISTER, &r) == 0);
  memset(a + 4096, 7, (64 << 20) - 4096);  // worth tracking
  ready_and_wait();
  pthread_t t = start_thread(serve, &fd);
  CHECK(strcmp(a, "served") == 0 && a[4096] == 7);
  CHECK(pthread_join(t, NULL) == 0);
  return survived();
}
