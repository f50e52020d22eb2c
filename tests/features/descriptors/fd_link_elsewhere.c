// Files that lost the name they were opened by and have another one in another folder: below, beside, where the first
// folder is gone, and one that is mapped shared and writable without a descriptor.
#include <sys/mman.h>
#include "feature.h"

static int made(const char* name, const char* text) {
  const int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
  CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
  return fd;
}

static void goes_by(int fd, const char* name, off_t size) {
  struct stat x, y;
  CHECK(fstat(fd, &x) == 0 && stat(name, &y) == 0 && x.st_ino == y.st_ino && x.st_dev == y.st_dev && x.st_nlink == 1);
  CHECK(lseek(fd, 0, SEEK_CUR) == size && write(fd, "!", 1) == 1 && stat(name, &y) == 0 && y.st_size == size + 1);
}

int main(void) {
  CHECK(mkdir("one", 0700) == 0 && mkdir("two", 0700) == 0 && mkdir("two/inner", 0700) == 0 && mkdir("gone", 0700) == 0);
  const int below = made("first", "below"), beside = made("one/first", "beside"), gone = made("gone/first", "gone");
  const int mapped = made("one/mapped", "0123456789");
  CHECK(link("first", "two/inner/second") == 0 && unlink("first") == 0);
  CHECK(link("one/first", "two/third") == 0 && unlink("one/first") == 0);
  CHECK(link("gone/first", "two/fourth") == 0 && unlink("gone/first") == 0 && rmdir("gone") == 0);
  char* page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, mapped, 0);
  CHECK(page != MAP_FAILED && close(mapped) == 0);
  CHECK(link("one/mapped", "two/fifth") == 0 && unlink("one/mapped") == 0);
  ready_and_wait();
  goes_by(below, "two/inner/second", 5);
  goes_by(beside, "two/third", 6);
  goes_by(gone, "two/fourth", 4);
  CHECK(memcmp(page, "0123456789", 10) == 0);
  page[0] = 'x';
  CHECK(msync(page, 4096, MS_SYNC) == 0);
  const int again = open("two/fifth", O_RDONLY);
  char first;
  CHECK(again >= 0 && read(again, &first, 1) == 1 && first == 'x');
  return survived();
}
