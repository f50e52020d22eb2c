// System V semaphores and message queues live outside of the process; what it finds in them after a
// restore is what was there at the snapshot, although the kernel undoes at its end what semop was to
// undo (SEM_UNDO).
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include "feature.h"
static int sets, queue;
static void operate(short number, short change, short flags) {
  struct sembuf b = {(unsigned short)number, change, flags};
  CHECK(semop(sets, &b, 1) == 0);
}
static int value(int number) { return semctl(sets, number, GETVAL); }
struct message {
  long type;
  char text[4000];
};
static void send(long type, const char* text, size_t bytes) {
  struct message m = {.type = type};
  memcpy(m.text, text, bytes);
  CHECK(msgsnd(queue, &m, bytes, 0) == 0);
}
static void receive(long type, const char* text, size_t bytes) {
  struct message m;
  CHECK(msgrcv(queue, &m, sizeof(m.text), 0, IPC_NOWAIT) == (ssize_t)bytes);
  CHECK(m.type == type && memcmp(m.text, text, bytes) == 0);
}
int main(void) {
  static char large[4000];
  memset(large, 'x', sizeof(large));
  // By a key the number of this process, so that several of these run beside each other.
  sets = semget(getpid(), 4, 0640 | IPC_CREAT), queue = msgget(IPC_PRIVATE, 0600);
  CHECK(sets >= 0 && queue >= 0);
  for (int i = 0; i < 4; ++i) CHECK(semctl(sets, i, SETVAL, 5) == 0);
  operate(0, -2, 0);
  operate(1, -2, SEM_UNDO);
  operate(2, 4, SEM_UNDO);
  operate(3, -5, SEM_UNDO);
  operate(3, 5, SEM_UNDO);
  send(7, "first", 5);
  send(3, "", 0);
  send(9, large, sizeof(large));
  const int key = getpid();
  ready_and_wait();
  CHECK(value(0) == 3 && value(1) == 3 && value(2) == 9 && value(3) == 5);
  struct semid_ds set;
  struct msqid_ds state;
  CHECK(semctl(sets, 0, IPC_STAT, &set) == 0 && msgctl(queue, IPC_STAT, &state) == 0);
  CHECK(set.sem_nsems == 4 && (set.sem_perm.mode & 0777) == 0640 && semget(key, 4, 0) == sets);
  CHECK(set.sem_perm.uid == geteuid() && state.msg_perm.uid == geteuid());
  CHECK((state.msg_perm.mode & 0777) == 0600 && state.msg_qnum == 3);
  receive(7, "first", 5);
  receive(3, "", 0);
  receive(9, large, sizeof(large));
  operate(0, 1, 0);
  operate(1, -1, SEM_UNDO);
  CHECK(value(0) == 4 && value(1) == 2);
  CHECK(msgctl(queue, IPC_RMID, NULL) == 0 && semctl(sets, 0, IPC_RMID) == 0);
  return survived();
}
