// Filters of system calls that the program has set for all of its threads, by prctl, by the system
// call, and for a child: they hold after a restore, in their order, with their arguments and their
// ways to answer, and the memory that they were set from may be gone.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/prctl.h>
#include "feature.h"

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IF_NOT(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip)
#define ANSWER(what) BPF_STMT(BPF_RET | BPF_K, what)

static pthread_barrier_t begin, end;
static int answered[2];  // by a thread that was there before

static int error_of(long call, long a, long b) {
  errno = 0;
  return syscall(call, a, b, 0, 0, 0) < 0 ? errno : 0;
}

static void* ask(void* unused) {
  pthread_barrier_wait(&begin);
  answered[0] = error_of(SYS_sethostname, 0, 0);
  answered[1] = error_of(SYS_unshare, 0x10000000, 0);
  pthread_barrier_wait(&end);
  return unused;
}

static int filters_of(const char* task) {
  char text[8192] = "";
  const int fd = open(task, O_RDONLY);
  CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
  close(fd);
  const char* line = strstr(text, "Seccomp_filters:");
  return line ? atoi(line + 16) : -1;
}

// Which signal ends a child that makes this call; 0: none.
static int ends_child(long call) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (!child) {
    syscall(call, 0, 0, 0, 0, 0);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void set_by_prctl(void) {
  struct sock_filter* code = malloc(64 * sizeof *code);
  const struct sock_filter program[] = {LOAD(nr),
                                        IF_NOT(SYS_sethostname, 1),
                                        ANSWER(SECCOMP_RET_ERRNO | 77),
                                        IF_NOT(SYS_swapoff, 1),
                                        ANSWER(SECCOMP_RET_KILL_PROCESS),
                                        ANSWER(SECCOMP_RET_ALLOW)};
  memcpy(code, program, sizeof program);
  struct sock_fprog filter = {sizeof program / sizeof *program, code};
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
  memset(code, 0xff, sizeof program);
  free(code);
}

// For all threads. Of the calls that our program and others both make it forbids arguments only.
static void set_for_all(void) {
  const struct sock_filter program[] = {LOAD(nr),
                                        IF_NOT(SYS_unshare, 4),
                                        LOAD(args[0]),
                                        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x10000000, 0, 1),
                                        ANSWER(SECCOMP_RET_ERRNO | 78),
                                        ANSWER(SECCOMP_RET_ALLOW),
                                        IF_NOT(SYS_ioctl, 3),
                                        LOAD(args[1]),
                                        IF_NOT(0x5412, 1),  // TIOCSTI
                                        ANSWER(SECCOMP_RET_ERRNO | 79),
                                        ANSWER(SECCOMP_RET_ALLOW)};
  struct sock_fprog filter = {sizeof program / sizeof *program, (struct sock_filter*)program};
  CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0);
}

int main(void) {
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  const int nothing = error_of(SYS_unshare, 0, 0);  // what a container's own filter answers
  const int before = filters_of("/proc/self/status");
  set_by_prctl();
  pthread_barrier_init(&begin, NULL, 2), pthread_barrier_init(&end, NULL, 2);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, ask, NULL) == 0);
  set_for_all();
  // The kernel takes none that is no program: nothing is remembered of that.
  struct sock_fprog wrong = {0, NULL};
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &wrong) == -1 && errno == EINVAL);

  ready_and_wait();
  CHECK(error_of(SYS_sethostname, 0, 0) == 77);
  CHECK(error_of(SYS_unshare, 0x10000000, 0) == 78);
  CHECK(error_of(SYS_ioctl, 0, 0x5412) == 79);
  CHECK(error_of(SYS_unshare, 0, 0) == nothing);
  pthread_barrier_wait(&begin), pthread_barrier_wait(&end);
  CHECK(answered[0] == 77 && answered[1] == 78);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(ends_child(SYS_swapoff) == SIGSYS);
  if (before >= 0) CHECK(filters_of("/proc/self/status") == before + 2);
  CHECK(prctl(PR_GET_SECCOMP) == SECCOMP_MODE_FILTER && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
  set_for_all();  // the threads still have all in common
  return survived();
}
