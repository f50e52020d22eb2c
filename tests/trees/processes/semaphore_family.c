// Processes that pass messages round by a System V queue, count under a System V semaphore that they
// take and give with SEM_UNDO, and one that holds another semaphore with SEM_UNDO: when it is killed, restored or not, the kernel gives
// the semaphore back.
#include <signal.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include "tree.h"
enum { kWorkers = 3, kAtWork = 0, kHeld = 1 };
static int sets, queue;
static struct {
  volatile long counted, inside, passed[kWorkers];
}* common;
static void operate(unsigned short number, short change, short flags) {
  struct sembuf b = {number, change, flags};
  while (semop(sets, &b, 1) != 0) CHECK(errno == EINTR);
}
struct message {
  long type, round;
};
static void send(long type, long round) {
  struct message m = {type, round};
  while (msgsnd(queue, &m, sizeof(m.round), 0) != 0) CHECK(errno == EINTR);
}
static long receive(long type) {
  struct message m;
  while (msgrcv(queue, &m, sizeof(m.round), type, 0) != sizeof(m.round)) CHECK(errno == EINTR);
  return m.round;
}
static int work(int worker) {
  long last = 0;
  for (;;) {
    const long round = receive(worker + 1);
    if (round < 0) return 50;
    CHECK(round == last + 1);
    last = round;
    operate(kAtWork, -1, SEM_UNDO);
    CHECK(++common->inside == 1);
    ++common->counted;
    common->passed[worker] = round;
    CHECK(--common->inside == 0);
    operate(kAtWork, 1, SEM_UNDO);
    send((worker + 1) % kWorkers + 1, worker == kWorkers - 1 ? round + 1 : round);
  }
}
int main(void) {
  sets = semget(IPC_PRIVATE, 2, 0600), queue = msgget(IPC_PRIVATE, 0600);
  common = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(sets >= 0 && queue >= 0 && common != MAP_FAILED);
  for (int i = 0; i < 2; ++i) CHECK(semctl(sets, i, SETVAL, 1) == 0);
  pid_t workers[kWorkers];
  for (int i = 0; i < kWorkers; ++i)
    if ((workers[i] = fork()) == 0) _exit(work(i));
  const pid_t holder = fork();
  if (holder == 0) {
    operate(kHeld, -1, SEM_UNDO);
    for (;;) pause();
  }
  while (semctl(sets, kHeld, GETVAL) != 0) sleep_ms(1);
  send(1, 1);
  while (common->passed[0] < 100) sleep_ms(1);
  ready_and_wait();
  CHECK(semctl(sets, kHeld, GETVAL) == 0);
  const long before = common->passed[0];
  while (common->passed[0] < before + 100) sleep_ms(1);
  int status;
  CHECK(kill(holder, SIGKILL) == 0 && waitpid(holder, &status, 0) == holder);
  CHECK(semctl(sets, kHeld, GETVAL) == 1);
  // Each is told to end when it has no other message before that one.
  for (int i = 0; i < kWorkers; ++i) {
    kill(workers[i], SIGSTOP);
    CHECK(waitpid(workers[i], &status, WUNTRACED) == workers[i] && WIFSTOPPED(status));
  }
  while (msgrcv(queue, &(struct message){0}, sizeof(long), 0, IPC_NOWAIT) >= 0) continue;
  for (int i = 0; i < kWorkers; ++i) send(i + 1, -1);
  for (int i = 0; i < kWorkers; ++i) kill(workers[i], SIGCONT);
  for (int i = 0; i < kWorkers; ++i) CHECK(wait_status(workers[i]) == 50);
  const long passed = common->passed[0] + common->passed[1] + common->passed[2];
  CHECK(common->counted == passed && semctl(sets, kAtWork, GETVAL) == 1);
  CHECK(semctl(sets, 0, IPC_RMID) == 0 && msgctl(queue, IPC_RMID, NULL) == 0);
  return survived();
}
