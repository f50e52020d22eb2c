// A named pipe, opened at both ends, with contents; one opened for both at once.
#include "feature.h"
int main(void) {
  CHECK(mkfifo("fifo", 0600) == 0 && mkfifo("both", 0600) == 0);
  int r = open("fifo", O_RDONLY | O_NONBLOCK), w = open("fifo", O_WRONLY), b = open("both", O_RDWR);
  CHECK(r >= 0 && w >= 0 && b >= 0);
  CHECK(write(w, "first", 5) == 5 && write(b, "second", 6) == 6);
  ready_and_wait();
  char text[16];
  CHECK(read(r, text, 16) == 5 && memcmp(text, "first", 5) == 0);
  CHECK(read(r, text, 16) == -1 && errno == EAGAIN);
  CHECK(read(b, text, 16) == 6 && memcmp(text, "second", 6) == 0);
  close(w);
  CHECK(read(r, text, 16) == 0);
  unlink("fifo"), unlink("both");
  return survived();
}
