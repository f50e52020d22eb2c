// Files of its own that a program has open and may not open again: their modes say no.
#include "feature.h"
static mode_t mode_of(int file) {
  struct stat st;
  CHECK(fstat(file, &st) == 0);
  return st.st_mode & 07777;
}
int main(void) {
  char c;
  const int made = open("read only", O_RDWR | O_CREAT, 0444);
  const int none = open("no mode", O_RDWR | O_CREAT | O_APPEND, 0600);
  const int reader = open("no mode", O_RDONLY);
  CHECK(made >= 0 && none >= 0 && reader >= 0 && fchmod(none, 0) == 0);
  CHECK(write(made, "abc", 3) == 3 && write(none, "def", 3) == 3 && read(reader, &c, 1) == 1);
  const mode_t mode = mode_of(made);
  ready_and_wait();
  CHECK(mode_of(made) == mode && mode_of(none) == 0);
  CHECK(write(made, "x", 1) == 1 && pread(made, &c, 1, 3) == 1 && c == 'x');
  CHECK(write(none, "y", 1) == 1 && pread(none, &c, 1, 3) == 1 && c == 'y');
  CHECK(read(reader, &c, 1) == 1 && c == 'e');
  return survived();
}
