// sandbox COMMAND ARGS...: runs it under a filter like a container's default one: no namespaces, no
// clone3 (ENOSYS, so that libc falls back), no userfaultfd, kcmp, ptrace or io_uring.
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define ANSWER(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))
#define DENY(nr, error) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, 1), ANSWER(error)

int main(int argc, char** argv) {
  struct sock_filter code[] = {
      NUMBER,
      DENY(SYS_clone3, ENOSYS),
      DENY(SYS_unshare, EPERM),
      DENY(SYS_setns, EPERM),
      DENY(SYS_mount, EPERM),
      DENY(SYS_userfaultfd, EPERM),
      DENY(SYS_kcmp, EPERM),
      DENY(SYS_ptrace, EPERM),
      DENY(SYS_io_uring_setup, EPERM),
      DENY(SYS_perf_event_open, EPERM),
      // clone with any of the namespace flags
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x7e020000, 0, 1),
      ANSWER(EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
  if (argc < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    perror("sandbox");
    return 125;
  }
  execvp(argv[1], argv + 1);
  perror(argv[1]);
  return 127;
}
