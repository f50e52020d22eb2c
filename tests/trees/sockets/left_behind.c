// The end of a pipe goes to a child by a connection that is closed before the child accepts it,
// which is a moment after a snapshot was asked for (Python's forkserver): it cannot be examined.
#include <sys/socket.h>
#include <sys/un.h>
#include "tree.h"
static struct sockaddr_un name = {AF_UNIX, "left"};
static void serve(int listening) {
  while (access("go_on", F_OK) != 0 && access("asked", F_OK) != 0) sleep_ms(2);
  sleep_ms(300);
  int connection = accept(listening, NULL, NULL);
  char byte, room[CMSG_SPACE(sizeof(int))];
  struct iovec one = {&byte, 1};
  struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  CHECK(connection >= 0 && recvmsg(connection, &m, 0) == 1 && byte == 'p');
  int end;
  memcpy(&end, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof end);
  CHECK(close(connection) == 0);
  while (access("go_on", F_OK) != 0) sleep_ms(2);
  CHECK(write(end, "told", 4) == 4);
  _exit(51);
}
int main(void) {
  int s = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0), ends[2];
  CHECK(bind(s, (struct sockaddr*)&name, sizeof name) == 0 && listen(s, 7) == 0);
  pid_t child = fork();
  if (child == 0) serve(s);
  close(s);
  CHECK(pipe(ends) == 0 && connect(c, (struct sockaddr*)&name, sizeof name) == 0);
  char byte = 'p', room[CMSG_SPACE(sizeof(int))];
  struct iovec one = {&byte, 1};
  struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  struct cmsghdr* head = CMSG_FIRSTHDR(&m);
  *head = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
  memcpy(CMSG_DATA(head), &ends[1], sizeof(int));
  CHECK(sendmsg(c, &m, 0) == 1 && close(c) == 0 && close(ends[1]) == 0);
  // The snapshot is asked for when we say so.
  CHECK(close(open("asked", O_CREAT | O_WRONLY, 0600)) == 0);
  ready_and_wait();
  char text[8];
  CHECK(read(ends[0], text, 8) == 4 && memcmp(text, "told", 4) == 0);
  CHECK(wait_status(child) == 51);
  return survived();
}
