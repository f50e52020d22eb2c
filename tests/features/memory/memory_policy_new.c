// A thread gives one new mapping after the other a NUMA policy (mbind), also while a snapshot begins: each keeps it.
#include <sys/mman.h>
#include "feature.h"
enum { kBind = 2, kAddress = 2, kMappings = 256, kBytes = 4096 };
static volatile int stop;
static void has_policy(void* at) {
  int mode = -1;
  CHECK(syscall(SYS_get_mempolicy, &mode, NULL, 0, at, kAddress) == 0 && mode == kBind);
}
static void* make(void* numa) {
  static void* mapping[kMappings];
  unsigned long one = 1;
  for (int i = 0; !stop; i = (i + 1) % kMappings) {
    if (mapping[i]) {
      has_policy(mapping[i]);
      CHECK(munmap(mapping[i], kBytes) == 0);
    }
    mapping[i] = mmap(NULL, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapping[i] != MAP_FAILED);
    if (syscall(SYS_mbind, mapping[i], kBytes, kBind, &one, 1024, 0) != 0) {
      CHECK(errno == ENOSYS || errno == EPERM);  // a container's filter
      return NULL;
    }
    *(volatile int*)numa = 1;
    const struct timespec pause = {0, 100000};
    nanosleep(&pause, NULL);
  }
  for (int i = 0; i < kMappings; ++i)
    if (mapping[i]) has_policy(mapping[i]);
  return NULL;
}
int main(void) {
  volatile int numa = 0;
  pthread_t t = start_thread(make, (void*)&numa);
  sleep_ms(50);
  ready_and_wait();
  stop = 1;
  CHECK(pthread_join(t, NULL) == 0);
  if (!numa) absent("mbind");
  return survived();
}
