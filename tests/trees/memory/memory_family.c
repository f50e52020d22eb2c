// Processes of a job with memory of their own each: a child, a grandchild, a daemon. With restore
// --lazy all of them run before it is there. Whoever is born then finds what its parent had.
#include <sys/mman.h>
#include "tree.h"
enum { kWords = 1 << 20 };
static uint32_t word(uint32_t who, uint32_t i) { return (who * 2654435761u) ^ (i * 40503u); }
static uint32_t* fill(uint32_t who) {
  uint32_t* m = mmap(NULL, kWords * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(m != MAP_FAILED);
  for (uint32_t i = 0; i < kWords; ++i) m[i] = word(who, i);
  return m;
}
static int is_right(const uint32_t* m, uint32_t who) {
  for (uint32_t i = kWords; i-- > 0;)
    if (m[i] != word(who, i)) return 0;
  return 1;
}
static int check(const uint32_t* m, uint32_t who) {
  pid_t child = fork();
  if (child == 0) _exit(is_right(m, who) ? 5 : 6);
  return is_right(m, who) && wait_status(child) == 5;
}
int main(void) {
  int up[2];
  CHECK(pipe(up) == 0);
  uint32_t* own = fill(1);
  pid_t child = fork();
  if (child == 0) {
    uint32_t* mine = fill(2);
    pid_t grandchild = fork();
    if (grandchild == 0) {
      uint32_t* more = fill(3);
      CHECK(write(up[1], "g", 1) == 1);
      while (access("go_on", F_OK) != 0) sleep_ms(5);
      _exit(check(own, 1) && check(mine, 2) && check(more, 3) ? 7 : 8);
    }
    CHECK(write(up[1], "c", 1) == 1);
    while (access("go_on", F_OK) != 0) sleep_ms(5);
    const int right = check(mine, 2) && check(own, 1);
    _exit(right && wait_status(grandchild) == 7 ? 7 : 8);
  }
  pid_t between = fork();
  if (between == 0) {
    if (fork()) _exit(0);
    setsid();
    uint32_t* mine = fill(4);
    CHECK(write(up[1], "d", 1) == 1);
    while (access("go_on", F_OK) != 0) sleep_ms(5);
    const char* result = check(mine, 4) && check(own, 1) ? "+" : "-";
    CHECK(write(up[1], result, 1) == 1);
    _exit(0);
  }
  CHECK(wait_status(between) == 0);
  char c;
  for (int i = 0; i < 3; ++i) CHECK(read(up[0], &c, 1) == 1);
  ready_and_wait();
  CHECK(check(own, 1));
  CHECK(wait_status(child) == 7);
  CHECK(read(up[0], &c, 1) == 1 && c == '+');
  munmap(own, kWords * 4);
  return survived();
}
