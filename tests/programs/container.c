// container [--no-copy] PROGRAM ARGUMENTS...: runs it under the filter that containers have: no
// clone3, kcmp, userfaultfd, PAGEMAP_SCAN, unshare, and no user namespaces.
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

#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define FAIL(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))
// When the value is `number`, the call fails; when not, on to the next.
#define REFUSE(number, error) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), FAIL(error)

int main(int argc, char** argv) {
  int no_copy = argc > 1 && strcmp(argv[1], "--no-copy") == 0;
  argc -= no_copy, argv += no_copy;
  struct sock_filter filter[] = {
      LOAD(nr),
      REFUSE(SYS_clone3, ENOSYS),
      REFUSE(SYS_kcmp, EPERM),
      REFUSE(SYS_userfaultfd, EPERM),
      REFUSE(SYS_unshare, EPERM),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
      LOAD(args[1]),
      REFUSE(0xc0606610u /* PAGEMAP_SCAN */, ENOTTY),
      LOAD(nr),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 5),
      LOAD(args[0]),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x10000000u /* CLONE_NEWUSER */, 0, 1),
      FAIL(EPERM),
      REFUSE(no_copy ? 0 : ~0u, EAGAIN),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  if (argc < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0) {
    perror("container");
    return 125;
  }
  execvp(argv[1], argv + 1);
  perror(argv[1]);
  return 127;
}
