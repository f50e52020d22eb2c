// System V semaphores and message queues are the kernel's: a restored program finds them under their
// numbers as they are then. What semop was to undo (SEM_UNDO) is undone when the program is killed.
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include "feature.h"
static void operate(int id, short number, short change, short flags) {
  struct sembuf b = {(unsigned short)number, change, flags};
  CHECK(semop(id, &b, 1) == 0);
}
int main(void) {
  struct {
    long type;
    char text[16];
  } message = {7, "in the queue"};
  const int sets = semget(IPC_PRIVATE, 2, 0600), queue = msgget(IPC_PRIVATE, 0600);
  CHECK(sets >= 0 && queue >= 0);
  CHECK(semctl(sets, 0, SETVAL, 5) == 0 && semctl(sets, 1, SETVAL, 5) == 0);
  operate(sets, 0, -2, 0);
  operate(sets, 1, -2, SEM_UNDO);
  CHECK(msgsnd(queue, &message, sizeof(message.text), 0) == 0);
  const int before = was_restored();
  ready_and_wait();
  const int killed = was_restored(), undone = semctl(sets, 1, GETVAL);
  CHECK(semctl(sets, 0, GETVAL) == 3);
  CHECK(undone == 5 ? was_restored() : undone == 3 && killed == before);
  memset(&message, 0, sizeof(message));
  CHECK(msgrcv(queue, &message, sizeof(message.text), 7, IPC_NOWAIT) == sizeof(message.text));
  CHECK(strcmp(message.text, "in the queue") == 0);
  operate(sets, 0, 1, 0);
  CHECK(semctl(sets, 0, GETVAL) == 4);
  CHECK(semctl(sets, 0, IPC_RMID) == 0 && msgctl(queue, IPC_RMID, NULL) == 0);
  return survived();
}
