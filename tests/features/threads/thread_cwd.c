// Threads with a working directory and a umask of their own.
#include <sched.h>
#include <stdatomic.h>
#include "feature.h"
static atomic_int set, go;
static void* in_folder(void* folder) {
  char path[512], now[512];
  CHECK(unshare(CLONE_FS) == 0 && chdir(folder) == 0 && getcwd(path, sizeof(path)));
  const mode_t mask = (mode_t)((char*)folder)[0];
  umask(mask);
  ++set;
  while (!go) sleep_ms(2);
  CHECK(getcwd(now, sizeof(now)) && strcmp(path, now) == 0 && umask(0) == mask);
  CHECK(chdir("..") == 0);
  return NULL;
}
int main(void) {
  CHECK(mkdir("a", 0700) == 0 && mkdir("b", 0700) == 0);
  umask(027);
  pthread_t one = start_thread(in_folder, "a"), other = start_thread(in_folder, "b");
  while (set < 2) sleep_ms(1);
  ready_and_wait();
  CHECK(access("a", F_OK) == 0 && umask(0) == 027);
  go = 1;
  CHECK(pthread_join(one, NULL) == 0 && pthread_join(other, NULL) == 0 && access("a", F_OK) == 0);
  return survived();
}
