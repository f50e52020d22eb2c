// Programs that the preload must leave as they are. Argument: which behaviour. Prints OK. Under
// gpuckpt a snapshot is under way meanwhile: the program asks for it as another process of its job
// does (wire.h), because its own SIGUSR1 asks for none.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define CHECK(x) do { if (!(x)) { dprintf(1, "FAILED line %d: %s (errno %d)\n", __LINE__, #x, errno); _exit(9); } } while (0)
extern char** environ;
static volatile sig_atomic_t hits, code;
static void hit(int s, siginfo_t* i, void* c) { (void)s; (void)c; hits++; code = i->si_value.sival_int; }
static void ask_for_snapshot(void) {
  if (!getenv("GPUCKPT_STORE")) return;
  siginfo_t relay = {.si_signo = 32, .si_code = SI_QUEUE};
  relay.si_pid = getpid();
  relay.si_value.sival_ptr = (void*)0x67636b7072656c61;  // kRelayCookie
  CHECK(syscall(SYS_rt_sigqueueinfo, getpid(), 32, &relay) == 0);
}
static void plain(int s) { (void)s; hits += 10; }
static void* late(void* a) { (void)a; usleep(300000); dprintf(1, "OK\n"); return 0; }
static void* forever(void* a) { (void)a; for (;;) pause(); }
int main(int c, char** v) {
  const char* t = c > 1 ? v[1] : "";
  if (!strcmp(t, "unshare")) { CHECK(unshare(CLONE_NEWUSER) == 0); }
  else if (!strcmp(t, "pthread_exit")) { pthread_t p; pthread_create(&p, 0, late, 0); pthread_exit(0); }
  else if (!strcmp(t, "sleep")) { struct timespec a, b, d = {0, 400000000}; clock_gettime(CLOCK_MONOTONIC, &a); ask_for_snapshot(); CHECK(nanosleep(&d, 0) == 0); clock_gettime(CLOCK_MONOTONIC, &b); CHECK((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 >= 399); }
  else if (!strcmp(t, "handler")) {
    struct sigaction s = {.sa_sigaction = hit, .sa_flags = SA_SIGINFO}, o; CHECK(sigaction(SIGUSR1, 0, &o) == 0 && o.sa_handler == SIG_DFL && o.sa_flags == 0);
    sigaddset(&s.sa_mask, SIGHUP); CHECK(sigaction(SIGUSR1, &s, &o) == 0 && o.sa_handler == SIG_DFL);
    CHECK(sigaction(SIGUSR1, 0, &o) == 0 && o.sa_sigaction == hit && (o.sa_flags & SA_SIGINFO) && !(o.sa_flags & SA_RESTART) && sigismember(&o.sa_mask, SIGHUP));
    union sigval q = {.sival_int = 42}; CHECK(sigqueue(getpid(), SIGUSR1, q) == 0 && hits == 1 && code == 42);
    CHECK(signal(SIGUSR1, plain) == (void*)hit && raise(SIGUSR1) == 0 && hits == 11 && signal(SIGUSR1, SIG_IGN) == plain && raise(SIGUSR1) == 0 && hits == 11); CHECK(signal(SIGUSR1, SIG_DFL) == SIG_IGN);
  } else if (!strcmp(t, "sigwait")) { sigset_t s; int n; sigemptyset(&s); sigaddset(&s, SIGUSR1); CHECK(sigprocmask(SIG_BLOCK, &s, 0) == 0 && raise(SIGUSR1) == 0 && sigwait(&s, &n) == 0 && n == SIGUSR1); usleep(300000); }
  else if (!strcmp(t, "closeall")) { for (int i = 0; i < 40; i++) { if (i == 5) ask_for_snapshot(); for (int f = 3; f < 1024; f++) close(f); int a = open("/dev/zero", O_RDONLY), b = open("/dev/null", O_WRONLY); CHECK(a == 3 && b == 4); char z[16]; CHECK(read(a, z, 16) == 16 && !z[3] && !z[15]); close(3); close(4); usleep(3000); } }
  else if (!strcmp(t, "children")) { for (volatile int i = 0; i < 20; i++) { if (i == 3) ask_for_snapshot(); pid_t p = fork(); if (!p) _exit(i); int s; CHECK(waitpid(-1, &s, 0) == p && WEXITSTATUS(s) == i); CHECK(waitpid(-1, &s, 0) < 0 && errno == ECHILD); p = vfork(); if (!p) _exit(3); CHECK(waitpid(p, &s, 0) == p); char* a[] = {"true", 0}; CHECK(posix_spawnp(&p, "true", 0, 0, a, environ) == 0 && waitpid(p, &s, 0) == p && s == 0); } }
  else if (!strcmp(t, "cancel")) { for (int i = 0; i < 5; i++) { pthread_t p; void* r; CHECK(pthread_create(&p, 0, forever, 0) == 0); usleep(20000); if (i == 2) ask_for_snapshot(); CHECK(pthread_cancel(p) == 0 && pthread_join(p, &r) == 0 && r == PTHREAD_CANCELED); } }
  else if (!strcmp(t, "setuid")) { pthread_t p; CHECK(pthread_create(&p, 0, forever, 0) == 0); for (int i = 0; i < 20; i++) { if (i == 3) ask_for_snapshot(); CHECK(setgid(getgid()) == 0); usleep(2000); } }
  else if (!strcmp(t, "pipe")) { for (int i = 0; i < 20; i++) { printf("line %d\n", i); fflush(stdout); if (i == 3) ask_for_snapshot(); usleep(2000); } return 0; }
  else return 2;
  dprintf(1, "OK\n");
  return 0;
}
