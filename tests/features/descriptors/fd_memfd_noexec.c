// memfds that may not be executed (MFD_NOEXEC_SEAL), and one that may and is sealed so.
#include <sys/mman.h>
#include "feature.h"
enum { kNoexecSeal = 8, kSealExec = 0x20 };
static int make(const char* name, unsigned flags, mode_t mode, int* seals, struct stat* st) {
  const int fd = memfd_create(name, flags | MFD_ALLOW_SEALING);
  if (fd < 0) absent("MFD_NOEXEC_SEAL");
  CHECK(write(fd, "contents", 8) == 8);
  if (mode) CHECK(fchmod(fd, mode) == 0);
  if (!(flags & kNoexecSeal)) CHECK(fcntl(fd, F_ADD_SEALS, kSealExec) == 0);
  *seals = fcntl(fd, F_GET_SEALS);
  CHECK(fstat(fd, st) == 0);
  return fd;
}
int main(void) {
  enum { kFiles = 4 };
  int fd[kFiles], seals[kFiles];
  struct stat st[kFiles], now;
  fd[0] = make("plain", kNoexecSeal, 0, &seals[0], &st[0]);
  fd[1] = make("changed", kNoexecSeal, 0640, &seals[1], &st[1]);
  fd[2] = make("executable", 0, 0750, &seals[2], &st[2]);
  fd[3] = make("not executable", 0, 0640, &seals[3], &st[3]);
  ready_and_wait();
  for (int i = 0; i < kFiles; ++i) {
    char text[8];
    CHECK(fcntl(fd[i], F_GET_SEALS) == seals[i]);
    CHECK(fstat(fd[i], &now) == 0 && now.st_mode == st[i].st_mode);
    CHECK(pread(fd[i], text, 8, 0) == 8 && memcmp(text, "contents", 8) == 0);
    CHECK(fchmod(fd[i], st[i].st_mode ^ 0111) == -1 && errno == EPERM);
    if (!(seals[i] & F_SEAL_WRITE)) CHECK(pwrite(fd[i], "C", 1, 0) == 1);
  }
  return survived();
}
