// A file that one process maps shared and writes to, while another reads it through a descriptor and a private mapping:
// a restore that puts the file's contents back must not stand in the way of the next one.
#include <sys/mman.h>
#include "tree.h"
int main(void) {
  const int file = open("both", O_RDWR | O_CREAT, 0600);
  CHECK(file >= 0 && ftruncate(file, 8192) == 0);
  volatile char* shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  CHECK(shared != MAP_FAILED && close(file) == 0);
  shared[0] = 'a', shared[4096] = 'b';
  const pid_t child = fork();
  if (child == 0) {
    CHECK(munmap((void*)shared, 8192) == 0);
    const int reader = open("both", O_RDONLY);
    const volatile char* view = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, reader, 0);
    CHECK(reader >= 0 && view != MAP_FAILED && view[0] == 'a');
    char c;
    while (pread(reader, &c, 1, 1) == 1 && c != 'x') sleep_ms(5);
    CHECK(view[1] == 'x' && view[4096] == 'b' && pread(reader, &c, 1, 4096) == 1 && c == 'b');
    _exit(3);
  }
  ready_and_wait();
  CHECK(shared[0] == 'a' && shared[4096] == 'b');
  shared[1] = 'x';
  CHECK(wait_status(child) == 3);
  return survived();
}
