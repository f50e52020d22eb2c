// Two processes in one removed folder, which is gone with the one above it: each works in it and has opened it; and a
// file without a name that both have opened on their own, with a lock that one of them holds.
#include <sys/file.h>
#include "../features/feature.h"

static void same(int a, int b) {
  struct stat x, y;
  CHECK(fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_ino == y.st_ino && x.st_dev == y.st_dev);
}

int main(void) {
  char start[4000], go_on[4096], path[64];
  int to_parent[2], to_child[2];
  CHECK(getcwd(start, sizeof(start)) && mkdir("p", 0700) == 0 && mkdir("p/a", 0755) == 0 && chdir("p/a") == 0);
  snprintf(go_on, sizeof(go_on), "%s/go_on", start);
  CHECK(pipe(to_parent) == 0 && pipe(to_child) == 0);
  int file = open("file", O_RDWR | O_CREAT, 0600);
  CHECK(file >= 0 && write(file, "text", 4) == 4);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) CHECK((file = open("file", O_RDWR)) >= 0 && flock(file, LOCK_EX) == 0);
  const int folder = fcntl(open(".", O_RDONLY | O_DIRECTORY), F_DUPFD, 77);
  char c = 'r';
  CHECK(folder >= 0);
  if (child == 0) {
    CHECK(write(to_parent[1], &c, 1) == 1 && read(to_child[0], &c, 1) == 1);
    same(folder, open(".", O_PATH));
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", getppid(), folder);
    same(folder, open(path, O_RDONLY | O_DIRECTORY));
    snprintf(path, sizeof(path), "/proc/%d/cwd", getppid());
    same(folder, open(path, O_RDONLY | O_DIRECTORY));
    _exit(write(file, "TEXT", 4) == 4 ? 0 : 1);
  }
  CHECK(read(to_parent[0], &c, 1) == 1 && unlink("file") == 0);
  CHECK(chdir(start) == 0 && rmdir("p/a") == 0 && rmdir("p") == 0 && fchdir(folder) == 0);
  CHECK(write(1, "ready\n", 6) == 6);
  while (access(go_on, F_OK) != 0) sleep_ms(5);
  CHECK(flock(file, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK);
  int status = -1;
  CHECK(write(to_child[1], &c, 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
  CHECK(flock(file, LOCK_EX | LOCK_NB) == 0);
  char text[4];
  CHECK(pread(file, text, 4, 0) == 4 && memcmp(text, "TEXT", 4) == 0);
  return survived();
}
