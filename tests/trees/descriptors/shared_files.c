// What parent and child have in common after fork: an offset, an eventfd, an epoll set, a socket
// pair with a message on its way, a memfd, named shared memory.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include "tree.h"
int main(void) {
  int file = open("shared", O_RDWR | O_CREAT, 0600), event = eventfd(3, 0), set = epoll_create1(0);
  int pair[2], memory = memfd_create("both", 0);
  char name[64];
  snprintf(name, sizeof name, "/gpuckpt-trees-%d", getpid());
  int named = shm_open(name, O_RDWR | O_CREAT, 0600);
  CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
  CHECK(ftruncate(memory, 8192) == 0 && ftruncate(named, 8192) == 0);
  volatile int* m = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  volatile int* n = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, named, 0);
  close(memory);
  struct epoll_event e = {EPOLLIN, {.u32 = 77}};
  CHECK(epoll_ctl(set, EPOLL_CTL_ADD, event, &e) == 0);
  CHECK(write(file, "before", 6) == 6);
  pid_t child = fork();
  if (child == 0) {
    close(pair[0]);
    char text[32];
    ssize_t got = recv(pair[1], text, sizeof text, 0);  // "first", sent before the snapshot
    CHECK(got == 5 && recv(pair[1], text, sizeof text, 0) == 6);
    CHECK(write(file, " child", 6) == 6);
    uint64_t v;
    CHECK(epoll_wait(set, &e, 1, 10000) == 1 && e.data.u32 == 77);
    CHECK(read(event, &v, 8) == 8 && v == 8);
    m[1024] = m[0] + 1, n[1024] = n[0] + 1;
    CHECK(send(pair[1], "done", 4, 0) == 4);
    _exit(5);
  }
  close(pair[1]);
  m[0] = 100, n[0] = 200;
  sleep_ms(20);
  kill(child, SIGSTOP);
  kill(child, SIGCONT);
  CHECK(send(pair[0], "first", 5, 0) == 5);
  ready_and_wait();
  uint64_t five = 5;
  CHECK(write(file, " parent", 7) == 7 && write(event, &five, 8) == 8);
  CHECK(send(pair[0], "second", 6, 0) == 6);
  char text[64] = "";
  CHECK(recv(pair[0], text, sizeof text, 0) == 4);
  CHECK(wait_status(child) == 5 && m[1024] == 101 && n[1024] == 201);
  CHECK(pread(file, text, sizeof text, 0) == 19 && !strcmp(text, "before parent child"));
  shm_unlink(name);
  return survived();
}
