// A file of /proc of which a part was read long ago: the snapshot tells of it. It can be read anew.
#include "feature.h"
int main(void) {
  char text[4096] = "";
  const int maps = open("/proc/self/maps", O_RDONLY), memory = open("/proc/self/mem", O_RDONLY);
  CHECK(maps >= 0 && memory >= 0);
  CHECK(read(maps, text, 10) == 10);
  static const char here[] = "what is read by its place is no text";
  CHECK(lseek(memory, (off_t)here, SEEK_SET) == (off_t)here && read(memory, text, 5) == 5);
  ready_and_wait();
  CHECK(read(memory, text, sizeof(here) - 5) == sizeof(here) - 5 && !strcmp(text, here + 5));
  CHECK(lseek(maps, 0, SEEK_CUR) == 10);
  uint64_t from, to;
  CHECK(lseek(maps, 0, SEEK_SET) == 0 && read(maps, text, 4000) > 100);
  CHECK(sscanf(text, "%lx-%lx", &from, &to) == 2 && from < to);
  return survived();
}
