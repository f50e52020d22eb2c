// Files without a name and without data, on a disk and in memory: empty, holes only, mapped, mapped without any right.
#include <sys/mman.h>
#include "feature.h"

static int unlinked(const char* name) {
  const int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(fd >= 0 && unlink(name) == 0);
  return fd;
}

static void is_empty(int fd) {
  struct stat st;
  CHECK(fstat(fd, &st) == 0 && st.st_size == 0 && st.st_nlink == 0);
  CHECK(write(fd, "new", 3) == 3);
  char text[4];
  CHECK(pread(fd, text, 4, 0) == 3 && memcmp(text, "new", 3) == 0);
}

static void is_hole(int fd) {
  struct stat st;
  char text[8] = "xxxxxxx";
  CHECK(fstat(fd, &st) == 0 && st.st_size == 1 << 20 && st.st_blocks == 0);
  CHECK(pread(fd, text, 8, (1 << 20) - 4) == 4 && memcmp(text, "\0\0\0\0", 4) == 0);
  CHECK(lseek(fd, 0, SEEK_DATA) == -1 && errno == ENXIO);
}

int main(void) {
  const int empty = unlinked("empty"), hole = unlinked("hole"), guard = unlinked("guard");
  const int memory = memfd_create("empty", 0), memory_hole = memfd_create("hole", 0);
  const int temporary = open(".", O_TMPFILE | O_RDWR, 0600);
  const int mapped = memfd_create("mapped", 0);
  CHECK(memory >= 0 && memory_hole >= 0 && mapped >= 0);
  CHECK(ftruncate(hole, 1 << 20) == 0 && ftruncate(memory_hole, 1 << 20) == 0);
  char* beyond = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, mapped, 0);
  CHECK(write(guard, "guard", 5) == 5);
  char* nothing = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE, guard, 0);
  CHECK(beyond != MAP_FAILED && nothing != MAP_FAILED && close(guard) == 0);
  ready_and_wait();
  is_empty(empty);
  is_empty(memory);
  if (temporary >= 0) is_empty(temporary);
  is_hole(hole);
  is_hole(memory_hole);
  CHECK(write(mapped, "seen", 4) == 4 && memcmp(beyond, "seen", 5) == 0);
  return survived();
}
