// A descriptor with the highest number that the limit allows.
#include "feature.h"
int main(void) {
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  // Root's restore has to raise the limit; that of others has the one the program was started with.
  struct rlimit more = {limit.rlim_cur, limit.rlim_max + 1};
  const int raised = setrlimit(RLIMIT_NOFILE, &more) == 0;
  if ((!raised || limit.rlim_max > 70000) && limit.rlim_max > 900) limit.rlim_max = 900;
  limit.rlim_cur = limit.rlim_max;
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  const int top = (int)limit.rlim_max - 1;
  char c;
  const int file = open("file", O_RDWR | O_CREAT, 0600);
  CHECK(file >= 0 && write(file, "abc", 3) == 3 && lseek(file, 1, SEEK_SET) == 1);
  CHECK(dup2(file, top) == top && close(file) == 0);
  ready_and_wait();
  CHECK(read(top, &c, 1) == 1 && c == 'b');
  CHECK(dup(top) == file);
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0 && (int)limit.rlim_max == top + 1);
  return survived();
}
