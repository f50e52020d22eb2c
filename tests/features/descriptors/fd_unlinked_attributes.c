// What fstat and getxattr tell of files and folders without a name: mode, owner, times, extended attributes.
#include <sys/mman.h>
#include <sys/xattr.h>
#include "feature.h"

static int fds[5];
static struct stat before[5];
static int has_attribute[5];

static void set(int i, int fd, mode_t mode) {
  CHECK((fds[i] = fd) >= 0);
  if (geteuid() == 0) CHECK(fchown(fd, 4321, 1234) == 0);
  CHECK(fchmod(fd, mode) == 0);
  has_attribute[i] = fsetxattr(fd, "user.feature", "value", 5, 0) == 0;
  const struct timespec times[2] = {{1000000000 + i, 123456789}, {900000000 + i, 987654321}};
  CHECK(futimens(fd, times) == 0 && fstat(fd, &before[i]) == 0);
}

int main(void) {
  int a = open("a", O_RDWR | O_CREAT | O_TRUNC, 0600), f;
  CHECK(a >= 0 && write(a, "text", 4) == 4 && unlink("a") == 0);
  const int b = open("b", O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(b >= 0 && unlink("b") == 0 && mkdir("f", 0700) == 0 && (f = open("f", O_RDONLY | O_DIRECTORY)) >= 0);
  CHECK(rmdir("f") == 0);
  set(0, a, 04751);
  set(1, b, 0400);
  set(2, memfd_create("m", 0), 0640);
  set(3, f, 01733);
  set(4, memfd_create("none", 0), 0);
  ready_and_wait();
  for (int i = 0; i < 5; ++i) {
    struct stat now;
    char value[8];
    CHECK(fstat(fds[i], &now) == 0);
    CHECK(now.st_mode == before[i].st_mode && now.st_uid == before[i].st_uid && now.st_gid == before[i].st_gid);
    CHECK(now.st_size == before[i].st_size || S_ISDIR(now.st_mode));
    CHECK(memcmp(&now.st_mtim, &before[i].st_mtim, sizeof(now.st_mtim)) == 0);
    CHECK(memcmp(&now.st_atim, &before[i].st_atim, sizeof(now.st_atim)) == 0);
    if (has_attribute[i])
      CHECK(fgetxattr(fds[i], "user.feature", value, 8) == 5 && memcmp(value, "value", 5) == 0);
  }
  return survived();
}
