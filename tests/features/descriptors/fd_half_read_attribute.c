// An attribute in /sys of which a part was read long ago: the snapshot tells of it. Its text has not changed, so that the rest follows.
#include "feature.h"
int main(void) {
  static const char* const paths[] = {"/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/mm/transparent_hugepage/defrag",
                                      "/sys/kernel/notes"};
  char text[4096] = "", rest[4096] = "";
  const int attribute = open(paths[0], O_RDONLY), other = open(paths[1], O_RDONLY), bytes = open(paths[2], O_RDONLY);
  if (attribute < 0 || other < 0) absent("/sys/kernel/mm/transparent_hugepage");
  const ssize_t whole = read(other, text, sizeof(text));
  CHECK(whole > 4 && read(other, text, 1) == 0);  // this one is read to its end
  const ssize_t size = pread(attribute, text, sizeof(text), 0);
  CHECK(size > 4 && read(attribute, rest, 3) == 3);
  char note[8], again[8] = "";
  CHECK(bytes < 0 || (read(bytes, note, 4) == 4 && pread(bytes, note, 4, 4) == 4));  // no text: its places stay
  ready_and_wait();
  CHECK(read(attribute, rest + 3, sizeof(rest) - 3) == size - 3 && memcmp(text, rest, (size_t)size) == 0);
  CHECK(lseek(other, 0, SEEK_CUR) == whole && read(other, text, 1) == 0);
  CHECK(bytes < 0 || (read(bytes, again, 4) == 4 && memcmp(note, again, 4) == 0));
  return survived();
}
