// A program in a memfd, executed after the snapshot, by execveat and by fexecve.
#include <sys/mman.h>
#include "feature.h"
static void run(int fd, int how) {
  char* argv[] = {"true", NULL};
  pid_t child = fork();
  if (child == 0) {
    if (how)
      fexecve(fd, argv, environ);
    else
      syscall(SYS_execveat, fd, "", argv, environ, AT_EMPTY_PATH);
    _exit(errno == ETXTBSY ? 26 : 99);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  errno = WEXITSTATUS(status);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
int main(void) {
  int from = open("/bin/true", O_RDONLY), to = memfd_create("program", MFD_ALLOW_SEALING | MFD_CLOEXEC);
  int keep = memfd_create("program", 0);
  CHECK(from >= 0 && to >= 0);
  char block[65536];
  for (ssize_t n; (n = read(from, block, sizeof(block))) > 0;)
    CHECK(write(to, block, (size_t)n) == n && write(keep, block, (size_t)n) == n);
  close(from);
  CHECK(fcntl(to, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
  ready_and_wait();
  run(to, 0), run(keep, 1);
  return survived();
}
