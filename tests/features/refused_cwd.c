// A working directory that was deleted: said in plain words.
#include "feature.h"
int main(void) {
  mkdir("lost", 0700);
  int back = open(".", O_RDONLY);
  CHECK(chdir("lost") == 0 && rmdir("../lost") == 0);
  CHECK(write(1, "ready\n", 6) == 6);
  while (faccessat(back, "go_on", F_OK, 0) != 0) sleep_ms(5);
  return survived();
}
