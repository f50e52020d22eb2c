// Mapped files in a folder that the program may not enter any more: what it sees of them stays.
#include <sys/mman.h>
#include "feature.h"
enum { kBytes = 40960 };
int main(void) {
  CHECK(mkdir("folder", 0700) == 0);
  const int fd = open("folder/file", O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0);
  for (int i = 0; i < kBytes; i += 4) CHECK(pwrite(fd, &i, 4, i) == 4);
  const int *own = mmap(NULL, kBytes, PROT_READ, MAP_PRIVATE, fd, 0),
            *common = mmap(NULL, kBytes / 2, PROT_READ, MAP_SHARED, fd, kBytes / 2);
  close(fd);
  CHECK(own != MAP_FAILED && common != MAP_FAILED && own[1] == 4);
  CHECK(chmod("folder", 0) == 0);
  ready_and_wait();
  for (int i = 0; i < kBytes / 4; ++i) CHECK(own[i] == 4 * i);
  for (int i = 0; i < kBytes / 8; ++i) CHECK(common[i] == 4 * i + kBytes / 2);
  CHECK(chmod("folder", 0700) == 0);
  return survived();
}
