// Waits with relative time-outs, one thread each, while snapshots come more often than the time-outs:
// each ends when its time is over. time_outs SECONDS; prints how long each one took.
#include <errno.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif

static double seconds;
static struct timespec span;
static int epoll_fd, semaphores;
static aio_context_t aio;
static sigset_t usr2;
static atomic_int cleaned, handled;

static long ends(long r, int expected) { return r == -1 && errno == expected ? 0 : r == 0 ? -1 : -2; }
static int milliseconds(void) { return (int)(seconds * 1000); }

static long in_poll(void) { return poll(NULL, 0, milliseconds()); }
static long in_epoll(void) {
  struct epoll_event e;
  return epoll_wait(epoll_fd, &e, 1, milliseconds());
}
static long in_epoll_pwait2(void) {
  struct epoll_event e;
  return syscall(SYS_epoll_pwait2, epoll_fd, &e, 1, &span, NULL, 8);
}
static long in_futex(void) {
  static uint32_t word;
  return ends(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &span, NULL, 0), ETIMEDOUT);
}
static long in_nanosleep(void) { return nanosleep(&span, NULL); }
static long in_clock_nanosleep(void) { return clock_nanosleep(CLOCK_MONOTONIC, 0, &span, NULL); }
static long in_sigtimedwait(void) { return ends(sigtimedwait(&usr2, NULL, &span), EAGAIN); }
static long in_semtimedop(void) {
  struct sembuf take = {0, -1, 0};
  return ends(semtimedop(semaphores, &take, 1, &span), EAGAIN);
}
static long in_getevents(void) {
  struct io_event e;
  return syscall(SYS_io_getevents, aio, 1, 1, &e, &span);
}
// On an alternate signal stack with room: where our handler then is.
static long with_alternate_stack(void) {
  const stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
  sigaltstack(&stack, NULL);
  return in_poll();
}
// The registers that a system call preserves hold what they held.
static long registers_kept(void) {
  register long argument3 asm("rdx") = milliseconds();
  register long argument4 asm("r10") = 0x1234;
  register long argument5 asm("r8") = 0x2345;
  register long argument6 asm("r9") = 0x3456;
  long r = SYS_poll;
  asm volatile("syscall"
               : "+a"(r), "+r"(argument3), "+r"(argument4), "+r"(argument5), "+r"(argument6)
               : "D"(0L), "S"(0L)
               : "rcx", "r11", "memory");
  if (argument3 != milliseconds() || argument4 != 0x1234 || argument5 != 0x2345 || argument6 != 0x3456) return -3;
  return r;
}
// Cancelled in the middle: the stack is unwound through the wait.
static void on_unwind(void* unused) {
  (void)unused;
  cleaned = 1;
}
static void* cancelled(void* unused) {
  pthread_cleanup_push(on_unwind, NULL);
  for (;;) poll(NULL, 0, 100000);
  pthread_cleanup_pop(0);
  return unused;
}
static long of_a_cancelled_thread(void) {
  pthread_t thread;
  void* result;
  pthread_create(&thread, NULL, cancelled, NULL);
  in_nanosleep();
  pthread_cancel(thread);
  pthread_join(thread, &result);
  return cleaned && result == PTHREAD_CANCELED ? 0 : -4;
}
// The program's own signal ends the wait, and its handler waits as well.
static void on_usr1(int sig) {
  (void)sig;
  handled = poll(NULL, 0, milliseconds() / 2) == 0;
}
static pthread_t signalled_thread;
static void* signalled(void* result) {
  *(long*)result = ends(poll(NULL, 0, 100000), EINTR);
  return NULL;
}
static long of_a_signalled_thread(void) {
  long result = -5;
  pthread_create(&signalled_thread, NULL, signalled, &result);
  nanosleep(&(struct timespec){span.tv_sec / 2, span.tv_nsec / 2 + (span.tv_sec & 1) * 500000000}, NULL);
  pthread_kill(signalled_thread, SIGRTMIN + 3);
  pthread_join(signalled_thread, NULL);
  return handled ? result : -6;
}

static struct {
  const char* name;
  long (*wait)(void);
  long result;
  double took;
  pthread_t thread;
} waits[] = {
    {"poll", in_poll, 0, 0, 0},
    {"epoll_wait", in_epoll, 0, 0, 0},
    {"epoll_pwait2", in_epoll_pwait2, 0, 0, 0},
    {"futex", in_futex, 0, 0, 0},
    {"nanosleep", in_nanosleep, 0, 0, 0},
    {"clock_nanosleep", in_clock_nanosleep, 0, 0, 0},
    {"sigtimedwait", in_sigtimedwait, 0, 0, 0},
    {"semtimedop", in_semtimedop, 0, 0, 0},
    {"io_getevents", in_getevents, 0, 0, 0},
    {"alternate_stack", with_alternate_stack, 0, 0, 0},
    {"registers", registers_kept, 0, 0, 0},
    {"cancelled", of_a_cancelled_thread, 0, 0, 0},
    {"signalled", of_a_signalled_thread, 0, 0, 0},
};
enum { kWaits = sizeof(waits) / sizeof(*waits) };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
static void* run(void* index) {
  const intptr_t i = (intptr_t)index;
  const double began = now();
  waits[i].result = waits[i].wait();
  waits[i].took = now() - began;
  return NULL;
}

int main(int count, char** arguments) {
  seconds = count > 1 ? atof(arguments[1]) : 2;
  span.tv_sec = (time_t)seconds;
  span.tv_nsec = (long)((seconds - (double)span.tv_sec) * 1e9);
  epoll_fd = epoll_create1(0);
  semaphores = semget(IPC_PRIVATE, 1, 0600);
  syscall(SYS_io_setup, 4, &aio);
  sigemptyset(&usr2);
  sigaddset(&usr2, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &usr2, NULL);
  struct sigaction a = {.sa_handler = on_usr1};
  sigaction(SIGRTMIN + 3, &a, NULL);
  for (intptr_t i = 0; i < kWaits; ++i) pthread_create(&waits[i].thread, NULL, run, (void*)i);
  printf("ready\n");
  fflush(stdout);
  int wrong = 0;
  for (int i = 0; i < kWaits; ++i) {
    pthread_join(waits[i].thread, NULL);
    const int early = waits[i].took < seconds - 0.002;
    wrong |= waits[i].result != 0 || early;
    printf("%s: %ld after %.2f s%s\n", waits[i].name, waits[i].result, waits[i].took, early ? ", too early" : "");
  }
  semctl(semaphores, 0, IPC_RMID);
  if (!wrong) printf("survived\n");
  fflush(stdout);
  return wrong;
}
