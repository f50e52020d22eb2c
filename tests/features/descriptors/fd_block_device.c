// A block device that is being read: a disk of the machine, or a loop device where none may be read.
#include <dirent.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include "feature.h"

static int open_disk(char* name, size_t room) {
  DIR* disks = opendir("/sys/block");
  if (!disks) absent("block devices");
  int fd = -1;
  for (struct dirent* e; fd < 0 && (e = readdir(disks));) {
    snprintf(name, room, "/dev/%s", e->d_name);
    struct stat st;
    // (A loop device may be that of this program in another test, which takes it down.)
    if (e->d_name[0] == '.' || strncmp(e->d_name, "loop", 4) == 0) continue;
    if (stat(name, &st) != 0 || !S_ISBLK(st.st_mode)) continue;
    fd = open(name, O_RDONLY);
    char byte;
    if (fd >= 0 && pread(fd, &byte, 1, 4096 + 512) != 1) close(fd), fd = -1;
  }
  closedir(disks);
  return fd;
}

// A loop device over a file of this folder.
static int make_disk(char* name, size_t room) {
  const int control = open("/dev/loop-control", O_RDWR);
  const int number = control < 0 ? -1 : ioctl(control, LOOP_CTL_GET_FREE);
  snprintf(name, room, "/dev/loop%d", number);
  const int fd = number < 0 ? -1 : open(name, O_RDWR);
  if (fd < 0) absent("a block device that this user may read");
  const int file = open("disk", O_RDWR | O_CREAT, 0600);
  CHECK(file >= 0 && ftruncate(file, 1 << 20) == 0 && pwrite(file, "text", 4, 4096 + 512) == 4);
  if (ioctl(fd, LOOP_SET_FD, file) != 0) absent("loop devices");
  CHECK(close(file) == 0 && close(control) == 0);
  return fd;
}

int main(void) {
  char name[300], first[512], rest[512], whole[1024];
  int fd = open_disk(name, sizeof(name));
  const int made = fd < 0;
  if (made) fd = make_disk(name, sizeof(name));
  const int same = dup(fd);
  CHECK(same >= 0 && pread(fd, whole, 1024, 4096) == 1024 && lseek(fd, 4096, SEEK_SET) == 4096);
  CHECK(read(fd, first, 512) == 512 && memcmp(first, whole, 512) == 0);
  ready_and_wait();
  struct stat a, b;
  CHECK(fstat(fd, &a) == 0 && stat(name, &b) == 0 && S_ISBLK(a.st_mode) && a.st_rdev == b.st_rdev);
  CHECK(pread(fd, whole, 1024, 4096) == 1024);
  CHECK(read(same, rest, 512) == 512 && memcmp(rest, whole + 512, 512) == 0);
  CHECK(lseek(fd, 0, SEEK_CUR) == 4096 + 1024);
  if (made) CHECK(ioctl(fd, LOOP_CLR_FD) == 0);
  return survived();
}
