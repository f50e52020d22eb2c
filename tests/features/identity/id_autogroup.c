// The nice value of the session's autogroup (sched(7)), which the leader of the session has set.
#include "feature.h"
static void autogroup(char* to, size_t room) {
  char text[64];
  const int fd = open("/proc/self/autogroup", O_RDONLY);
  const long n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
  if (n <= 0) absent("autogroups");
  text[n] = 0;
  close(fd);
  const char* nice = strstr(text, " nice ");
  CHECK(nice && strlen(nice) < room);
  strcpy(to, nice);  // (its number is another one)
}
int main(void) {
  char before[64], after[64];
  if (getsid(0) != getpid()) absent("a session of its own");
  autogroup(before, sizeof(before));
  int fd = open("/proc/self/autogroup", O_WRONLY);
  CHECK(fd >= 0);
  for (int i = 0; i < 100 && write(fd, "7", 1) != 1; ++i) sleep_ms(20);  // (ten a second are allowed)
  close(fd);
  autogroup(before, sizeof(before));
  CHECK(strcmp(before, " nice 7\n") == 0);
  ready_and_wait();
  autogroup(after, sizeof(after));
  CHECK(strcmp(before, after) == 0);
  return survived();
}
