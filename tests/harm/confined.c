// Programs that confine themselves with seccomp. They wait on the FIFO go_byte, which the test
// writes to, because they may not look for a file any more. confined KIND:
//   strict        the process itself, by prctl
//   strict_raw    the same by a system call that no library sees
//   strict_child  a child, by a system call that no library sees; it lives as long as its parent
//   kill          a filter that kills for whatever it does not know
//   errno         a filter that only answers errors
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include "../features/feature.h"

static long raw(long number, long a, long b, long c) {
  long r;
  asm volatile("syscall" : "=a"(r) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
  return r;
}

static int fifo;

static void confine(const char* kind) {
  if (strcmp(kind, "strict") == 0) {
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
    return;
  }
  if (strncmp(kind, "strict_", 7) == 0) {
    CHECK(raw(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0) == 0);
    return;
  }
  const unsigned answer = strcmp(kind, "kill") == 0 ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM;
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 4, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, answer),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  if (strcmp(kind, "errno") == 0) filter[1].k = SYS_fstatfs, filter[1].jt = 3, filter[2].jt = filter[2].jf = 3;
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

// Nothing but read, write and exit from here on.
static void live_confined(const char* kind) {
  char byte;
  confine(kind);
  write(1, "ready\n", 6);
  if (read(fifo, &byte, 1) == 1) write(1, "survived\n", 9);
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  CHECK(mkfifo("go_byte", 0600) == 0);
  CHECK((fifo = open("go_byte", O_RDWR)) >= 0);
  if (strcmp(argv[1], "strict_child") != 0) {
    live_confined(argv[1]);
    raw(strncmp(argv[1], "strict", 6) == 0 ? SYS_exit : SYS_exit_group, 0, 0, 0);
  }
  const pid_t child = fork();
  CHECK(child >= 0);
  if (!child) {
    live_confined(argv[1]);
    raw(SYS_exit, 7, 0, 0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
  return 0;
}
