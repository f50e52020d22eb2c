/* left_open COMMAND...: runs it with a pipe's writing end and a Unix socket open whose other ends
 * another process holds, as a shell leaves the descriptors of its job server. */
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int count, char** arguments) {
  int ends[2], sockets[2];
  if (count < 2 || pipe(ends) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets)) return 125;
  pid_t program = getpid();
  if (fork() == 0) {
    close(ends[1]), close(sockets[1]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == program) sleep(1);
    _exit(0);
  }
  close(ends[0]), close(sockets[0]);
  execv(arguments[1], arguments + 1);
  perror(arguments[1]);
  return 125;
}
