// A filter that is set by a system call which the library does not see.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include "feature.h"
int main(void) {
  struct sock_filter code[] = {{BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr)},
                               {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_swapoff},
                               {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | 77},
                               {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
  struct sock_fprog filter = {4, code};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  long r;
  asm volatile("syscall" : "=a"(r) : "a"(SYS_prctl), "D"(PR_SET_SECCOMP), "S"(SECCOMP_MODE_FILTER), "d"(&filter) : "rcx", "r11", "memory");
  CHECK(r == 0);
  ready_and_wait();
  CHECK(syscall(SYS_swapoff, 0) == -1 && errno == 77);
  return survived();
}
