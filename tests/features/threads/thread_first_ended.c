// The first thread has ended (pthread_exit) and another goes on: the process keeps its name, which is that of the first.
#include <sys/prctl.h>
#include "feature.h"
static void name_of_first(char* to, size_t room) {
  int fd = open("/proc/self/comm", O_RDONLY);
  long n = fd < 0 ? -1 : read(fd, to, room - 1);
  CHECK(n > 0);
  to[n] = 0;
  close(fd);
}
static void* other(void* first) {
  char before[32], after[32];
  pthread_join(*(pthread_t*)first, NULL);
  name_of_first(before, sizeof(before));
  ready_and_wait();
  name_of_first(after, sizeof(after));
  CHECK(strcmp(before, "first-name\n") == 0 && strcmp(before, after) == 0);
  CHECK(getpid() != (int)syscall(SYS_gettid));
  exit(survived());
}
int main(void) {
  static pthread_t self;
  self = pthread_self();
  prctl(PR_SET_NAME, "first-name");
  start_thread(other, &self);
  pthread_exit(NULL);
}
