// A filter of one thread alone.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include "feature.h"

static pthread_barrier_t set, end;

static void* confine(void* unused) {
  struct sock_filter code[] = {{BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr)},
                               {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_swapoff},
                               {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | 77},
                               {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
  struct sock_fprog filter = {4, code};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
  pthread_barrier_wait(&set), pthread_barrier_wait(&end);
  CHECK(syscall(SYS_swapoff, 0) == -1 && errno == 77);
  return unused;
}

int main(void) {
  pthread_t thread;
  pthread_barrier_init(&set, NULL, 2), pthread_barrier_init(&end, NULL, 2);
  CHECK(pthread_create(&thread, NULL, confine, NULL) == 0);
  pthread_barrier_wait(&set);
  ready_and_wait();
  pthread_barrier_wait(&end);
  CHECK(pthread_join(thread, NULL) == 0);
  return survived();
}
