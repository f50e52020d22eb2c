// A copy would no longer be the file that the other name, in another folder, leads to.
#include "feature.h"
int main(void) {
  int fd = open("first", O_RDWR | O_CREAT | O_EXCL, 0600);
  CHECK(fd >= 0 && mkdir("folder", 0700) == 0 && link("first", "folder/second") == 0 &&
        unlink("first") == 0);
  ready_and_wait();
  CHECK(write(fd, "x", 1) == 1);
  return survived();
}
