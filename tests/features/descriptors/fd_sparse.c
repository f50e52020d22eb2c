// An unlinked file of a quarter of a terabyte that holds two bytes.
#include "feature.h"
int main(void) {
  const off_t far = (off_t)1 << 38;
  int fd = open("sparse", O_RDWR | O_CREAT | O_EXCL, 0600);
  CHECK(fd >= 0 && unlink("sparse") == 0);
  CHECK(pwrite(fd, "a", 1, 0) == 1 && pwrite(fd, "z", 1, far) == 1);
  ready_and_wait();
  struct stat st;
  CHECK(fstat(fd, &st) == 0 && st.st_size == far + 1 && st.st_blocks < 10000);
  char c[3];
  CHECK(pread(fd, c, 1, 0) == 1 && pread(fd, c + 1, 1, 12345) == 1 && pread(fd, c + 2, 1, far) == 1);
  CHECK(c[0] == 'a' && c[1] == 0 && c[2] == 'z');
  return survived();
}
