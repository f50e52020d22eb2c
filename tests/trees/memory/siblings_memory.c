// Siblings that met in memory: a System V segment that is removed already, POSIX shared memory
// without a name, a memfd that travelled through a socket; semaphores in each.
#include <semaphore.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include "tree.h"
struct Place {
  sem_t ping, pong;
  int value;
};
static void make(struct Place* p) {
  CHECK(sem_init(&p->ping, 1, 0) == 0 && sem_init(&p->pong, 1, 0) == 0);
  p->value = 0;
}
static void take(sem_t* s) {
  while (sem_wait(s) != 0) CHECK(errno == EINTR);
}
static void play(struct Place** p, int rounds, int first) {
  for (int i = 0; i < rounds; ++i)
    for (int k = 0; k < 3; ++k) {
      if (!first) take(&p[k]->ping);
      ++p[k]->value;
      sem_post(first ? &p[k]->ping : &p[k]->pong);
      if (first) take(&p[k]->pong);
    }
}
static int pass(int socket, int fd) {
  union {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
  struct iovec part = {"m", 1};
  struct msghdr m = {.msg_iov = &part,
                     .msg_iovlen = 1,
                     .msg_control = &control,
                     .msg_controllen = sizeof(control)};
  char c;
  part.iov_base = &c, c = 'm';
  memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
  if (fd >= 0) return (int)sendmsg(socket, &m, 0);
  CHECK(recvmsg(socket, &m, 0) == 1);
  memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
  return fd;
}
static void* map(int fd) {
  void* m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(m != MAP_FAILED);
  return m;
}
int main(void) {
  struct Place* p[3];
  int id = shmget(IPC_PRIVATE, 4096, 0600), pair[2];
  CHECK(id >= 0 && (p[0] = shmat(id, NULL, 0)) != (void*)-1);
  CHECK(shmctl(id, IPC_RMID, NULL) == 0);
  char name[64];
  snprintf(name, sizeof name, "/gpuckpt-siblings-%d", getpid());
  int named = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
  CHECK(named >= 0 && shm_unlink(name) == 0 && ftruncate(named, 4096) == 0);
  p[1] = map(named), close(named);
  make(p[0]), make(p[1]);
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  pid_t child[2];
  for (int i = 0; i < 2; ++i) {
    if ((child[i] = fork())) continue;
    int memory;
    if (i == 0) {
      memory = memfd_create("travels", 0);
      CHECK(ftruncate(memory, 4096) == 0);
      make(p[2] = map(memory));
      CHECK(pass(pair[0], memory) == 1);
    } else {
      memory = pass(pair[1], -1);
      p[2] = map(memory);
    }
    close(memory);
    play(p, 200, i == 0);
    if (i == 0) CHECK(write(1, "ready\n", 6) == 6);
    // Only the first one looks, or it could wait for an answer from one that has just seen it.
    while (i || access("go_on", F_OK) != 0) play(p, 1, i == 0), sleep_ms(i == 0 ? 2 : 0);
    _exit(50);
  }
  // The second plays until it is told to end: it may be one round ahead.
  CHECK(wait_status(child[0]) == 50);
  for (int k = 0; k < 3; ++k)
    if (k < 2) sem_post(&p[k]->ping);
  int status;
  sleep_ms(20);
  kill(child[1], SIGTERM);
  CHECK(waitpid(child[1], &status, 0) == child[1]);
  CHECK(p[0]->value >= 400 && p[0]->value - p[1]->value <= 2);
  return survived();
}
