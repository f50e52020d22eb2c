// NUMA policies of a thread and of a mapping (on one node as on many).
#include <sys/mman.h>
#include "feature.h"
enum { kPreferred = 1, kBind = 2, kAddress = 2 };
static unsigned long nodes[16], one[16] = {1};
static int policy(void* at) {
  int mode = -1;
  CHECK(syscall(SYS_get_mempolicy, &mode, nodes, 1024, at, at ? kAddress : 0) == 0);
  return mode;
}
static void* other(void* stop) {
  CHECK(policy(NULL) == 0);
  while (!*(volatile int*)stop) sleep_ms(5);
  CHECK(policy(NULL) == 0);
  return NULL;
}
int main(void) {
  static volatile int stop;
  char* bound = mmap(NULL, 1 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char* plain = mmap(NULL, 1 << 20, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(bound != MAP_FAILED && plain != MAP_FAILED);
  pthread_t t = start_thread(other, (void*)&stop);
  sleep_ms(20);
  int numa = syscall(SYS_mbind, bound, 1 << 20, kBind, one, 1024, 0) == 0;
  CHECK(numa || errno == ENOSYS || errno == EPERM);  // a container's filter
  if (numa) CHECK(syscall(SYS_set_mempolicy, kPreferred, one, 1024) == 0);
  memset(bound, 1, 1 << 20);
  ready_and_wait();
  if (numa) CHECK(policy(bound) == kBind && nodes[0] == 1 && policy(plain) == 0);
  if (numa) CHECK(policy(NULL) == kPreferred && nodes[0] == 1);
  stop = 1;
  CHECK(pthread_join(t, NULL) == 0 && bound[4096] == 1);
  return survived();
}
