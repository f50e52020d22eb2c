// A thread that is told of a pipe by a signal (F_OWNER_TID): it is the owner, and the signal goes there. It took a lease as well, of
// whose owner the kernel does not tell: the program is told when it is broken.
#include "feature.h"
struct owner {
  int type, pid;
};
static volatile int told, teller, may_end;
static int ends[2], leased;
static void arrived(int n, siginfo_t* info, void* context) {
  (void)n, (void)context;
  teller = (int)syscall(SYS_gettid);
  told = info->si_fd;
}
static void* own(void* result) {
  struct owner me = {F_OWNER_TID, (int)syscall(SYS_gettid)};
  CHECK(fcntl(ends[0], F_SETOWN_EX, &me) == 0 && fcntl(ends[0], F_SETSIG, SIGRTMIN + 3) == 0);
  CHECK(fcntl(ends[0], F_SETFL, O_ASYNC | O_NONBLOCK) == 0);
  CHECK(fcntl(leased, F_SETLEASE, F_WRLCK) == 0 && fcntl(leased, F_SETSIG, SIGRTMIN + 3) == 0);
  __atomic_store_n((int*)result, 1, __ATOMIC_RELEASE);
  while (!may_end) sleep_ms(5);
  __atomic_store_n((int*)result, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);  // which a restore may have changed
  while (may_end != 2) sleep_ms(5);
  return NULL;
}
static void await_telling(int fd, int thread) {
  for (int i = 0; i < 400 && told < 0; ++i) sleep_ms(5);
  CHECK(told == fd && (!thread || teller == thread));
  told = -1;
}
int main(void) {
  struct sigaction a = {.sa_sigaction = arrived, .sa_flags = SA_SIGINFO | SA_RESTART};
  CHECK(pipe(ends) == 0 && sigaction(SIGRTMIN + 3, &a, NULL) == 0);
  leased = open("leased", O_RDWR | O_CREAT, 0600);
  CHECK(leased >= 0);
  int state = 0;
  pthread_t t = start_thread(own, &state);
  while (!__atomic_load_n(&state, __ATOMIC_ACQUIRE)) sleep_ms(1);
  told = -1;
  ready_and_wait();
  CHECK(told == -1);
  may_end = 1;
  while (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == 1) sleep_ms(1);
  struct owner owner = {0, 0};
  CHECK(fcntl(ends[0], F_GETOWN_EX, &owner) == 0 && owner.type == F_OWNER_TID && owner.pid == state);
  CHECK(write(ends[1], "x", 1) == 1);
  await_telling(ends[0], state);
  CHECK(fcntl(leased, F_GETLEASE) == F_WRLCK);
  CHECK(open("leased", O_RDONLY | O_NONBLOCK) == -1 && errno == EWOULDBLOCK);
  await_telling(leased, 0);
  CHECK(fcntl(leased, F_SETLEASE, F_UNLCK) == 0);
  may_end = 2;
  CHECK(pthread_join(t, NULL) == 0);
  return survived();
}
