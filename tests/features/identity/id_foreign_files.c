// What a program that another user than root restores sees of the files of others: it has its old
// process ids in a user namespace, which knows its own user alone, and the restore says so. What it
// may do with them stays.
#include "feature.h"

static void name_of_namespace(char* to, size_t room) {
  const ssize_t n = readlink("/proc/self/ns/user", to, room - 1);
  CHECK(n > 0);
  to[n] = 0;
}

static uid_t overflow_user(void) {
  char text[16] = "";
  const int fd = open("/proc/sys/kernel/overflowuid", O_RDONLY);
  CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
  close(fd);
  return (uid_t)atoi(text);
}

static int restore_said(const char* words) {
  static char text[16384];
  const int fd = open("restore.err", O_RDONLY);
  CHECK(fd >= 0);
  const ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  return n > 0 && strstr(text, words) != NULL;
}

int main() {
  char before[64], after[64];
  struct stat own, other;
  name_of_namespace(before, sizeof before);
  const int fd = open("mine", O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0 && stat("/etc/passwd", &other) == 0);
  const uid_t owner = other.st_uid;
  if (owner == getuid() && owner != 0) absent("/etc/passwd of another user");
  ready_and_wait();
  name_of_namespace(after, sizeof after);
  CHECK(fstat(fd, &own) == 0 && own.st_uid == geteuid() && own.st_gid == getegid());
  CHECK(stat("/etc/passwd", &other) == 0 && open("/etc/passwd", O_RDONLY) >= 0);
  if (strcmp(before, after) == 0) {
    CHECK(other.st_uid == owner);
    return survived();
  }
  CHECK(getuid() != 0 && was_restored());
  CHECK(other.st_uid == overflow_user());
  CHECK(fchown(fd, owner, (gid_t)-1) < 0 && errno == EINVAL);
  CHECK(restore_said("in a user namespace") && restore_said("files of other users look like"));
  return survived();
}
