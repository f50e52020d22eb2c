// Kernel-side state of many kinds, set up before and used after the snapshot. Argument: steps. Deterministic output.
#define _GNU_SOURCE
#include <fcntl.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(x) do { if (!(x)) { printf("FAILED line %d: %s (errno %d)\n", __LINE__, #x, errno); fflush(stdout); _exit(9); } } while (0)
static volatile sig_atomic_t alarms, usr2s, on_stack;
static char alt[65536];
static void* nothing(void* a) { return a; }
static void on_alarm(int s) { (void)s; alarms++; }
static void on_usr2(int s) { char c; usr2s++; on_stack = &c >= alt && &c < alt + sizeof(alt); (void)s; }

int main(int argc, char** argv) {
  int steps = argc > 1 ? atoi(argv[1]) : 15;
  char dir[] = "/tmp/kernel_state.XXXXXX";
  CHECK(mkdtemp(dir) && chdir(dir) == 0);
  umask(027);
  int p[2]; CHECK(pipe(p) == 0 && write(p[1], "pipe content", 12) == 12);
  int extra = dup(p[1]);
  int sp[2]; CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sp) == 0 && write(sp[0], "to one", 6) == 6 && write(sp[1], "to zero!", 8) == 8);
  int ev = eventfd(5, EFD_NONBLOCK);
  int tf = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  struct itimerspec its = {{0, 50000000}, {0, 50000000}}; CHECK(timerfd_settime(tf, 0, &its, 0) == 0);
  sigset_t blocked; sigemptyset(&blocked); sigaddset(&blocked, SIGHUP); sigaddset(&blocked, SIGRTMIN + 3); sigaddset(&blocked, SIGWINCH);
  CHECK(sigprocmask(SIG_BLOCK, &blocked, 0) == 0);
  sigset_t sf; sigemptyset(&sf); sigaddset(&sf, SIGWINCH);
  int sfd = signalfd(-1, &sf, SFD_NONBLOCK);
  int ep = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event e = {EPOLLIN, {.u64 = 0x1234567890abcdefull}}; CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &e) == 0);
  e.data.u64 = 77; CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, tf, &e) == 0);
  int a = open("append.txt", O_RDWR | O_CREAT | O_APPEND, 0666); CHECK(write(a, "first\n", 6) == 6);
  int f1 = open("shared.txt", O_RDWR | O_CREAT, 0666); CHECK(write(f1, "0123456789", 10) == 10);
  int f2 = dup(f1), f3 = open("shared.txt", O_RDWR); CHECK(lseek(f1, 4, SEEK_SET) == 4 && lseek(f3, 7, SEEK_SET) == 7);
  int gone = open("gone.txt", O_RDWR | O_CREAT, 0600); CHECK(write(gone, "unlinked content", 16) == 16 && unlink("gone.txt") == 0 && lseek(gone, 3, SEEK_SET) == 3);
  int mf = memfd_create("mine", 0); CHECK(ftruncate(mf, 3 * 4096) == 0);
  char* m1 = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, mf, 0); char* m2 = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, mf, 4096);
  strcpy(m1 + 4096, "coherent"); CHECK(pwrite(mf, "unmapped tail", 13, 2 * 4096 + 100) == 13);
  char* sh = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0); memset(sh, 7, 1 << 20);
  char* none = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); memset(none, 9, 65536); mprotect(none, 65536, PROT_NONE);
  char* wipe = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); memset(wipe, 5, 65536); madvise(wipe, 65536, MADV_WIPEONFORK);
  char* dont = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); memset(dont, 6, 65536); madvise(dont, 65536, MADV_DONTFORK);
  char* huge = mmap(0, 10ull << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  struct sigaction sa = {.sa_handler = on_alarm, .sa_flags = SA_RESTART}; sigaction(SIGALRM, &sa, 0);
  sa.sa_handler = on_usr2; sa.sa_flags = SA_ONSTACK; sigaction(SIGUSR2, &sa, 0);
  stack_t ss = {.ss_sp = alt, .ss_size = sizeof(alt)}; CHECK(sigaltstack(&ss, 0) == 0);
  signal(SIGURG, SIG_IGN);
  struct itimerval iv = {{0, 100000}, {0, 100000}}; setitimer(ITIMER_REAL, &iv, 0);
  union sigval v = {.sival_int = 4711}; CHECK(sigqueue(getpid(), SIGRTMIN + 3, v) == 0 && sigqueue(getpid(), SIGRTMIN + 3, v) == 0 && kill(getpid(), SIGHUP) == 0);
  timer_t pt; struct sigevent se = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2}; CHECK(timer_create(CLOCK_MONOTONIC, &se, &pt) == 0);
  struct itimerspec pi = {{0, 0}, {3600, 0}}; CHECK(timer_settime(pt, 0, &pi, 0) == 0);
  struct rlimit rl = {200, 200}; CHECK(setrlimit(RLIMIT_NOFILE, &rl) == 0);
  pid_t pid = getpid(); char* brk0 = sbrk(4096); strcpy(brk0, "brk");
  printf("ready\n"); fflush(stdout);
  for (int i = 0; i < steps; i++) usleep(100000);

  struct epoll_event got[4]; int n = epoll_wait(ep, got, 4, 1000); CHECK(n == 2);
  CHECK(got[0].data.u64 == 0x1234567890abcdefull || got[1].data.u64 == 0x1234567890abcdefull);
  char b[100] = ""; CHECK(read(p[0], b, 100) == 12 && !memcmp(b, "pipe content", 12));
  close(p[1]); close(extra); CHECK(read(p[0], b, 100) == 0);
  CHECK(read(sp[1], b, 100) == 6 && !memcmp(b, "to one", 6) && read(sp[0], b, 100) == 8);
  uint64_t u; CHECK(read(ev, &u, 8) == 8 && u == 5); CHECK(read(ev, &u, 8) < 0 && errno == EAGAIN);
  CHECK(read(tf, &u, 8) == 8 && u >= 1);
  usleep(120000); CHECK(read(tf, &u, 8) == 8 && u >= 1 && u < 20);
  CHECK(kill(getpid(), SIGWINCH) == 0); struct signalfd_siginfo si; CHECK(read(sfd, &si, sizeof(si)) == sizeof(si) && si.ssi_signo == SIGWINCH);
  CHECK((fcntl(ep, F_GETFD) & FD_CLOEXEC) && !(fcntl(a, F_GETFD) & FD_CLOEXEC));
  CHECK(write(a, "second\n", 7) == 7 && lseek(a, 0, SEEK_END) == 13);
  CHECK(write(f2, "XX", 2) == 2 && lseek(f1, 0, SEEK_CUR) == 6 && lseek(f3, 0, SEEK_CUR) == 7);
  CHECK(read(gone, b, 100) == 13 && !memcmp(b, "inked content", 13)); struct stat st; CHECK(fstat(gone, &st) == 0 && st.st_size == 16);
  CHECK(!strcmp(m2, "coherent")); strcpy(m2, "changed"); CHECK(!strcmp(m1 + 4096, "changed") && pread(mf, b, 7, 4096) == 7 && !memcmp(b, "changed", 7));
  CHECK(pread(mf, b, 13, 2 * 4096 + 100) == 13 && !memcmp(b, "unmapped tail", 13));
  pid_t c = fork(); if (!c) { int bad = wipe[100] != 0; sh[5] = 99; _exit(bad); } int ws; CHECK(waitpid(c, &ws, 0) == c && ws == 0);
  CHECK(sh[5] == 99 && sh[(1 << 20) - 1] == 7 && wipe[100] == 5 && dont[65535] == 6);
  mprotect(none, 65536, PROT_READ); CHECK(none[0] == 9 && none[65535] == 9);
  CHECK(munmap(huge, 10ull << 40) == 0);
  int before = alarms; for (int i = 0; i < 10; i++) usleep(50000); CHECK(alarms > before); iv.it_value.tv_usec = iv.it_interval.tv_usec = 0; setitimer(ITIMER_REAL, &iv, 0);
  raise(SIGUSR2); CHECK(usr2s == 1 && on_stack);
  struct sigaction old; sigaction(SIGURG, 0, &old); CHECK(old.sa_handler == SIG_IGN); sigaction(SIGUSR1, 0, &old); CHECK(old.sa_handler == SIG_DFL);
  siginfo_t info; sigset_t w; sigemptyset(&w); sigaddset(&w, SIGRTMIN + 3); struct timespec zero = {0, 0};
  CHECK(sigtimedwait(&w, &info, &zero) == SIGRTMIN + 3 && info.si_value.sival_int == 4711 && sigtimedwait(&w, &info, &zero) == SIGRTMIN + 3 && sigtimedwait(&w, &info, &zero) < 0);
  sigset_t pend; sigpending(&pend); CHECK(sigismember(&pend, SIGHUP));
  CHECK(timer_gettime(pt, &pi) == 0 && pi.it_value.tv_sec > 3500 && timer_delete(pt) == 0);
  CHECK(getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur == 200);
  CHECK(umask(0) == 027); CHECK(!strcmp(brk0, "brk") && sbrk(0) >= (void*)(brk0 + 4096) && sbrk(4096) != (void*)-1);
  if (!getenv("NEW_IDS")) CHECK(getpid() == pid);
  char cwd[200]; CHECK(getcwd(cwd, 200) && !strcmp(cwd, dir)); CHECK(access("append.txt", R_OK) == 0);
  void* big = malloc(50 << 20); CHECK(big); memset(big, 1, 50 << 20); free(big);
  pthread_t th; CHECK(pthread_create(&th, 0, nothing, 0) == 0 && pthread_join(th, 0) == 0);
  CHECK(unlink("append.txt") == 0 && unlink("shared.txt") == 0 && chdir("/") == 0 && rmdir(dir) == 0);
  printf("all state is back\n"); return 0;
}
