// Files and a folder of /proc of a process that has ended: reading them goes on failing as it did,
// and their names stay. They must not become those of a process that has its number now.
#include "feature.h"
static pid_t short_lived(const int gate[2]) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child) return child;
  char byte;
  close(gate[1]);
  _exit(read(gate[0], &byte, 1) == 0 ? 0 : 1);
}
static int open_of(pid_t pid, const char* what, int flags) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d%s", pid, what);
  const int fd = open(path, flags);
  CHECK(fd >= 0);
  return fd;
}
static void name_of(int fd, char name[64]) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(path, name, 63);
  CHECK(n > 0);
  name[n] = 0;
}
int main(void) {
  int gate[2];
  CHECK(pipe(gate) == 0);
  const pid_t child = short_lived(gate);
  const int status = open_of(child, "/status", O_RDONLY), maps = open_of(child, "/maps", O_RDONLY | O_CLOEXEC);
  const int folder = open_of(child, "", O_RDONLY | O_DIRECTORY);
  char task[40], name[64], now[64], byte;
  snprintf(task, sizeof(task), "/task/%d/stat", child);
  const int thread = open_of(child, task, O_RDONLY);
  close(gate[1]);
  int end;
  CHECK(waitpid(child, &end, 0) == child && end == 0);
  close(gate[0]);
  CHECK(read(status, &byte, 1) == -1 && errno == ESRCH);
  CHECK(openat(folder, "stat", O_RDONLY) == -1);
  const int reason = errno;
  name_of(status, name);
  ready_and_wait();
  CHECK(read(status, &byte, 1) == -1 && errno == ESRCH);
  CHECK(read(maps, &byte, 1) == -1 && errno == ESRCH);
  CHECK(read(thread, &byte, 1) == -1 && errno == ESRCH);
  CHECK(openat(folder, "stat", O_RDONLY) == -1 && errno == reason);
  CHECK(fcntl(maps, F_GETFD) == FD_CLOEXEC && (fcntl(folder, F_GETFL) & O_DIRECTORY));
  name_of(status, now);
  // (Only root, and a user who may make namespaces, can choose the number.)
  CHECK(strcmp(strchr(name + 6, '/'), strchr(now + 6, '/')) == 0);
  return survived();
}
