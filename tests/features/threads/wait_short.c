// Many threads wait for a moment again and again, in calls that SA_RESTART does not make go on: some are always just about to
// enter one when the snapshot looks at them, and none of the calls ends early because of it.
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include "feature.h"
static volatile int over;
static int word;
static void* wait_in(void* way) {
  const int ep = epoll_create1(EPOLL_CLOEXEC);
  CHECK(ep >= 0);
  while (!over) {
    struct timespec t = {0, 300000};
    struct epoll_event e;
    if (way == (void*)0) CHECK(ppoll(NULL, 0, &t, NULL) == 0);
    if (way == (void*)1) CHECK(nanosleep(&t, &t) == 0);
    if (way == (void*)2) CHECK(epoll_wait(ep, &e, 1, 1) == 0);
    if (way == (void*)3) CHECK(poll(NULL, 0, 1) == 0);
    if (way == (void*)4) CHECK(syscall(SYS_futex, &word, FUTEX_WAIT, 0, &t, NULL, 0) == -1 && errno == ETIMEDOUT);
    if (way == (void*)5) CHECK(syscall(SYS_pselect6, 0, NULL, NULL, NULL, &t, NULL) == 0);
  }
  return NULL;
}
int main(void) {
  pthread_t thread[48];
  for (intptr_t i = 0; i < 48; ++i) thread[i] = start_thread(wait_in, (void*)(i % 6));
  ready_and_wait();
  over = 1;
  for (int i = 0; i < 48; ++i) pthread_join(thread[i], NULL);
  return survived();
}
