// A parent without a filter of system calls, a child with one, its child with two, and one that was
// executed anew: each has its own afterwards.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include "tree.h"

static void forbid(unsigned call, unsigned error) {
  struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                               BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
                               BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
                               BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  struct sock_fprog filter = {4, code};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

static int answers(long call) {
  errno = 0;
  syscall(call, 0, 0, 0, 0, 0);
  return errno;
}

static int once(void) { return answers(SYS_swapoff) == 77 && answers(SYS_swapon) != 78 ? 50 : 1; }
static int twice(void) { return answers(SYS_swapoff) == 77 && answers(SYS_swapon) == 78 ? 50 : 2; }

// Ends with 50 when both have found what they should.
static int with_child(void) {
  forbid(SYS_swapoff, 77);
  const pid_t child = fork_waiting(NULL);
  CHECK(child > 0);
  const pid_t more = fork();
  CHECK(more >= 0);
  if (!more) {
    forbid(SYS_swapon, 78);
    CHECK(write(30, "x", 1) == 1);
    while (access("go_on", F_OK) != 0) sleep_ms(5);
    _exit(twice());
  }
  while (access("go_on", F_OK) != 0) sleep_ms(5);
  CHECK(waitpid(child, NULL, 0) == child);
  return wait_status(more) == 50 ? once() : 3;
}

int main(int argc, char** argv) {
  if (argc > 1) {
    forbid(SYS_swapoff, 77);
    CHECK(write(30, "x", 1) == 1);
    while (access("go_on", F_OK) != 0) sleep_ms(5);
    return once();
  }
  int ready[2];
  CHECK(pipe(ready) == 0 && dup2(ready[1], 30) == 30);
  const pid_t forked = fork();
  CHECK(forked >= 0);
  if (!forked) _exit(with_child());
  const pid_t executed = fork();
  CHECK(executed >= 0);
  if (!executed) {
    execl("/proc/self/exe", argv[0], "again", NULL);
    _exit(9);
  }
  char bytes[2];
  CHECK(read(ready[0], bytes, 1) == 1 && read(ready[0], bytes + 1, 1) == 1);
  ready_and_wait();
  CHECK(wait_status(forked) == 50 && wait_status(executed) == 50);
  CHECK(answers(SYS_swapoff) != 77);
  return survived();
}
