// Files of /proc/self, of a thread and of the system, devices, a pidfd of the process itself, and
// O_PATH descriptors of such files, of a folder and a link of /proc, and of a namespace.
#include "feature.h"
int main(void) {
  int maps = open("/proc/self/maps", O_RDONLY), status = open("/proc/self/status", O_RDONLY);
  int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY), up = open("/proc/uptime", O_RDONLY);
  int null = open("/dev/null", O_WRONLY), zero = open("/dev/zero", O_RDONLY), random = open("/dev/urandom", O_RDONLY);
  int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
  int self = open("/proc/self", O_PATH), link = open("/proc/self/exe", O_PATH | O_NOFOLLOW);
  int space = open("/proc/self/ns/uts", O_PATH), kernel = open("/sys/kernel", O_PATH | O_DIRECTORY);
  CHECK(self >= 0 && link >= 0 && space >= 0 && kernel >= 0);
  char text[4096] = "", want[64];
  CHECK(maps >= 0 && status >= 0 && folder >= 0 && up >= 0 && null >= 0 && zero >= 0 && random >= 0 && pidfd >= 0);
  ready_and_wait();
  CHECK(pread(status, text, 4095, 0) > 0);
  sprintf(want, "Pid:\t%d\n", getpid());
  CHECK(strstr(text, want));
  CHECK(lseek(maps, 0, SEEK_SET) == 0 && read(maps, text, 4000) > 100 && close(maps) == 0);
  CHECK(faccessat(folder, "0", F_OK, 0) == 0 && pread(up, text, 100, 0) > 0);
  CHECK(write(null, "x", 1) == 1 && read(zero, text, 1) == 1 && !text[0] && read(random, text, 4) == 4);
  CHECK(syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) == 0);
  struct stat a, b;
  CHECK(faccessat(self, "maps", F_OK, 0) == 0 && faccessat(kernel, "mm", F_OK, 0) == 0);
  CHECK(readlinkat(link, "", text, sizeof(text)) > 0 && text[0] == '/');
  CHECK(fstat(space, &a) == 0 && stat("/proc/self/ns/uts", &b) == 0 && a.st_ino == b.st_ino);
  return survived();
}
