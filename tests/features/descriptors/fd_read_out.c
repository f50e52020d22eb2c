// Files of /proc that were read to their end, and whose text has become longer since: nothing more
// comes, unless they are read from the beginning.
#include <sys/mman.h>
#include <sys/prctl.h>
#include "feature.h"
static const char* const name[] = {"/proc/self/maps", "/proc/self/smaps", "/proc/self/status",
                                   "/proc/sys/kernel/osrelease", "/proc/self/comm"};
enum { kFiles = sizeof(name) / sizeof(name[0]), kPages = 100 };
int main(void) {
  static char text[1 << 16];
  int file[kFiles];
  CHECK(prctl(PR_SET_NAME, "x") == 0);
  for (int i = 0; i < kFiles; ++i) {
    file[i] = open(name[i], O_RDONLY);
    CHECK(file[i] >= 0 && read(file[i], text, sizeof(text)) > 0);
    if (strstr(name[i], "maps"))  // all lists are read until nothing comes; other files in one piece
      while (read(file[i], text, sizeof(text)) > 0) {
      }
  }
  CHECK(prctl(PR_SET_NAME, "longer") == 0);
  char* pages = mmap(NULL, kPages * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(pages != MAP_FAILED);
  for (int i = 0; i < kPages; i += 2) CHECK(mprotect(pages + i * 4096, 4096, PROT_READ) == 0);
  ready_and_wait();
  for (int i = 0; i < kFiles; ++i) {
    CHECK(read(file[i], text, sizeof(text)) == 0);
    CHECK(lseek(file[i], 0, SEEK_SET) == 0 && read(file[i], text, sizeof(text)) > 0 && close(file[i]) == 0);
  }
  return survived();
}
