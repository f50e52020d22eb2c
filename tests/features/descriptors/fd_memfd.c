// memfd: contents, holes, seals, offset, shared mappings, two descriptions.
#include <sys/mman.h>
#include "feature.h"
int main(void) {
  int a = memfd_create("thing", MFD_ALLOW_SEALING | MFD_CLOEXEC), small = memfd_create("small", 0);
  CHECK(ftruncate(a, 3 << 20) == 0 && pwrite(a, "far", 3, 2 << 20) == 3 && write(a, "begin", 5) == 5);
  char* m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, a, 2 << 20);
  CHECK(m != MAP_FAILED);
  CHECK(fcntl(a, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) == 0);
  char path[64];
  sprintf(path, "/proc/self/fd/%d", a);
  int again = open(path, O_RDONLY);
  CHECK(again >= 0 && write(small, "xyz", 3) == 3 && fchmod(small, 0640) == 0);
  int sealed = memfd_create("sealed", MFD_ALLOW_SEALING);
  CHECK(write(sealed, "fixed", 5) == 5);
  CHECK(fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0);
  ready_and_wait();
  CHECK(memcmp(m, "far", 3) == 0 && lseek(a, 0, SEEK_CUR) == 5);
  m[0] = 'F';
  char c;
  CHECK(pread(again, &c, 1, 2 << 20) == 1 && c == 'F');
  CHECK(read(again, &c, 1) == 1 && c == 'b');
  CHECK(fcntl(a, F_GET_SEALS) == (F_SEAL_GROW | F_SEAL_SHRINK));
  CHECK(ftruncate(a, 1) == -1 && errno == EPERM);
  CHECK(lseek(small, 0, SEEK_END) == 3 && fcntl(small, F_GET_SEALS) == F_SEAL_SEAL);
  struct stat st;
  CHECK(fstat(small, &st) == 0 && (st.st_mode & 0777) == 0640);
  CHECK(pread(sealed, &c, 1, 4) == 1 && c == 'd' && pwrite(sealed, "x", 1, 0) == -1 && errno == EPERM);
  char link[64] = "";
  sprintf(path, "/proc/self/fd/%d", a);
  CHECK(readlink(path, link, 63) > 0 && strcmp(link, "/memfd:thing (deleted)") == 0);
  return survived();
}
