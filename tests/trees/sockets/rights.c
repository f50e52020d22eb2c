// A connection between two processes with bytes on their way, and a descriptor in flight that
// no process holds any more.
#include <sys/socket.h>
#include <sys/un.h>
#include "tree.h"
static const struct sockaddr_un address = {AF_UNIX, "rights.sock"};
static int child(int messages) {
  int c = socket(AF_UNIX, SOCK_STREAM, 0);
  CHECK(connect(c, (const void*)&address, sizeof(address)) == 0 && send(c, "early", 5, 0) == 5);
  while (access("go_on", F_OK) != 0) sleep_ms(5);
  char text[16], control[64];
  struct iovec part = {text, sizeof(text)};
  struct msghdr m = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
  CHECK(recvmsg(messages, &m, 0) == 3);
  int fd;
  memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
  CHECK(read(fd, text, sizeof(text)) == 4 && memcmp(text, "pipe", 4) == 0);
  CHECK(send(c, "late", 4, 0) == 4);
  return 3;
}
int main(void) {
  int pair[2], pipe_ends[2], listener = socket(AF_UNIX, SOCK_STREAM, 0);
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && pipe(pipe_ends) == 0);
  CHECK(bind(listener, (const void*)&address, sizeof(address)) == 0 && listen(listener, 4) == 0);
  pid_t other = fork();
  if (other == 0) close(pair[0]), close(pipe_ends[0]), close(pipe_ends[1]), _exit(child(pair[1]));
  close(pair[1]);
  int c = accept(listener, NULL, NULL);
  CHECK(c >= 0 && write(pipe_ends[1], "pipe", 4) == 4);
  union {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
  memcpy(CMSG_DATA(&control.head), &pipe_ends[0], sizeof(int));
  struct iovec part = {"msg", 3};
  struct msghdr m = {.msg_iov = &part,
                     .msg_iovlen = 1,
                     .msg_control = &control,
                     .msg_controllen = sizeof(control)};
  CHECK(sendmsg(pair[0], &m, 0) == 3 && close(pipe_ends[0]) == 0);
  sleep_ms(30);
  ready_and_wait();
  char text[16];
  // Not by MSG_WAITALL: a call that has moved a part returns the part when it is interrupted.
  for (ssize_t have = 0, n; have < 9; have += n)
    CHECK((n = read(c, text + have, (size_t)(9 - have))) > 0);
  CHECK(memcmp(text, "earlylate", 9) == 0);
  CHECK(wait_status(other) == 3);
  return survived();
}
