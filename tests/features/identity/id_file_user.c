// A process whose user and group for file accesses (setfsuid) are others than its effective ones.
#include <sys/fsuid.h>
#include "feature.h"
static void ids_of(char* to) {
  char text[4096] = "";
  int fd = open("/proc/thread-self/status", O_RDONLY);
  CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
  close(fd);
  char *from = strstr(text, "Uid:"), *end = strstr(text, "FDSize:");
  CHECK(from && end);
  memcpy(to, from, (size_t)(end - from)), to[end - from] = 0;
}
int main(void) {
  if (getuid() != 0) absent("root");
  char before[500], after[500];
  CHECK(chmod(".", 0755) == 0);  // the real user looks for go_on
  CHECK(setresgid(7, 8, 9) == 0 && setresuid(1234, 0, 77) == 0);
  setfsgid(4), setfsuid(55);
  CHECK(setfsuid((uid_t)-1) == 55);
  ids_of(before);
  ready_and_wait();
  ids_of(after);
  CHECK(strcmp(before, after) == 0);
  return survived();
}
