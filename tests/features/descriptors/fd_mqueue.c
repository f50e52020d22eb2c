// Message queues: one with a name, one that lost it, with messages of several priorities; a thread
// that waits for a message, and one in an epoll set.
#include <mqueue.h>
#include <sys/epoll.h>
#include "feature.h"
static char name[64];
static mqd_t make(const char* kind, long messages) {
  sprintf(name, "/gpuckpt-feature-%s-%d", kind, getpid());
  struct mq_attr a = {.mq_maxmsg = messages, .mq_msgsize = 16};
  mqd_t q = mq_open(name, O_RDWR | O_CREAT | O_EXCL | O_NONBLOCK, 0600, &a);
  CHECK(q != (mqd_t)-1);
  return q;
}
static void expect(mqd_t q, const char* text, unsigned priority) {
  char got[16];
  unsigned how;
  CHECK(mq_receive(q, got, 16, &how) == (ssize_t)strlen(text) + 1 && how == priority);
  CHECK(strcmp(got, text) == 0);
}
static void* wait_for_one(void* q) {
  expect((mqd_t)(intptr_t)q, "at last", 3);
  return NULL;
}
int main(void) {
  mqd_t lost = make("lost", 5);
  mqd_t again = mq_open(name, O_RDONLY);
  CHECK(mq_unlink(name) == 0);
  mqd_t waited = make("waited", 2), blocking = mq_open(name, O_RDONLY);
  CHECK(mq_unlink(name) == 0);
  mqd_t named = make("named", 4);
  CHECK(mq_send(named, "kept", 5, 1) == 0);
  CHECK(mq_send(lost, "low", 4, 1) == 0 && mq_send(lost, "high", 5, 9) == 0);
  CHECK(mq_send(lost, "", 0, 4) == 0 && mq_send(lost, "low 2", 6, 1) == 0);
  int set = epoll_create1(0);
  struct epoll_event e = {.events = EPOLLIN, .data.fd = (int)lost};
  CHECK(epoll_ctl(set, EPOLL_CTL_ADD, (int)lost, &e) == 0);
  pthread_t thread = start_thread(wait_for_one, (void*)(intptr_t)blocking);
  sleep_ms(20);
  ready_and_wait();
  CHECK(epoll_wait(set, &e, 1, 1000) == 1 && e.data.fd == (int)lost);
  struct mq_attr a;
  CHECK(mq_getattr(lost, &a) == 0 && a.mq_maxmsg == 5 && a.mq_msgsize == 16 && a.mq_curmsgs == 4);
  CHECK(a.mq_flags == O_NONBLOCK && mq_getattr(again, &a) == 0 && a.mq_flags == 0);
  CHECK(mq_send(again, "x", 1, 0) < 0 && errno == EBADF);
  expect(again, "high", 9);
  char got[16];
  unsigned how;
  CHECK(mq_receive(lost, got, 16, &how) == 0 && how == 4);
  expect(lost, "low", 1), expect(again, "low 2", 1);
  CHECK(mq_receive(lost, got, 16, NULL) < 0 && errno == EAGAIN);
  expect(named, "kept", 1);
  CHECK(mq_unlink(name) == 0);
  CHECK(mq_send(waited, "at last", 8, 3) == 0 && pthread_join(thread, NULL) == 0);
  return survived();
}
