// A working directory that was removed.
#include "feature.h"
int main(void) {
  char here[300];
  CHECK(getcwd(here, 300));
  strcat(here, "/go_on");
  CHECK(mkdir("d", 0700) == 0 && chdir("d") == 0 && rmdir("../d") == 0);
  CHECK(write(1, "ready\n", 6) == 6);
  while (access(here, F_OK) != 0) sleep_ms(5);
  char b[300];
  CHECK(getcwd(b, 300) == NULL && errno == ENOENT);
  struct stat s;
  CHECK(stat(".", &s) == 0 && s.st_nlink == 0);
  CHECK(chdir("/") == 0);
  return survived();
}
