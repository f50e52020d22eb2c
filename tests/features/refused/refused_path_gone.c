// A symbolic link that is held open itself (O_PATH) and has been removed: nothing can be made that is it.
#include "feature.h"
int main(void) {
  CHECK(symlink("anywhere", "link") == 0);
  const int fd = open("link", O_PATH | O_NOFOLLOW);
  CHECK(fd >= 0 && unlink("link") == 0);
  ready_and_wait();
  char text[16];
  CHECK(readlinkat(fd, "", text, sizeof(text)) == 8 && memcmp(text, "anywhere", 8) == 0);
  return survived();
}
