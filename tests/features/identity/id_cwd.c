// The working directory, held open too; a relative path means the same afterwards.
#include "feature.h"
int main(void) {
  char before[4096], after[4096];
  mkdir("below", 0700);
  int here = open("below", O_RDONLY | O_DIRECTORY);
  CHECK(close(open("below/file", O_CREAT | O_WRONLY, 0600)) == 0 && getcwd(before, sizeof(before)));
  ready_and_wait();
  CHECK(getcwd(after, sizeof(after)) && strcmp(before, after) == 0);
  CHECK(fchdir(here) == 0 && access("file", F_OK) == 0 && unlink("file") == 0 && chdir("..") == 0);
  return survived();
}
