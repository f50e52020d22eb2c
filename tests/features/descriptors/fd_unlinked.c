// Open files without a name: contents, offset, two descriptions of one, a mapping; on its own disk.
#include <sys/mman.h>
#include "feature.h"
int main(void) {
  int a = open("gone", O_RDWR | O_CREAT | O_TRUNC, 0600), b = open("gone", O_RDONLY), w = open("gone", O_WRONLY | O_APPEND);
  CHECK(a >= 0 && b >= 0 && w >= 0);
  char page[5000];
  memset(page, 'p', sizeof(page));
  CHECK(write(a, page, sizeof(page)) == sizeof(page));
  char* m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, a, 0);
  CHECK(m != MAP_FAILED);
  m[10] = 'M';
  CHECK(unlink("gone") == 0 && lseek(b, 9, SEEK_SET) == 9);
  int t = open(".", O_TMPFILE | O_RDWR, 0600);
  CHECK(t < 0 || write(t, "tmp", 3) == 3);
  ready_and_wait();
  char two[2];
  CHECK(read(b, two, 2) == 2 && two[0] == 'p' && two[1] == 'M');
  CHECK(lseek(a, 0, SEEK_CUR) == 5000 && lseek(a, 0, SEEK_END) == 5000);
  m[11] = 'N';
  CHECK(pread(b, two, 1, 11) == 1 && two[0] == 'N');
  CHECK(write(w, "end", 3) == 3 && lseek(b, 0, SEEK_END) == 5003);
  CHECK(access("gone", F_OK) != 0);
  if (t >= 0) CHECK(pread(t, page, 3, 0) == 3 && memcmp(page, "tmp", 3) == 0);
  struct stat here, file;
  CHECK(t < 0 || (stat(".", &here) == 0 && fstat(t, &file) == 0 && file.st_dev == here.st_dev));
  return survived();
}
