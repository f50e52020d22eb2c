// Large memory that is discarded, moved, cut, given to a child and used by system calls right after:
// every page is what it was, or what the program made of it. (Restored lazily, it is not there yet.)
#include <sys/mman.h>
#include "feature.h"
enum { kPage = 4096, kPages = 4096 };
static unsigned char* make(unsigned seed) {
  unsigned char* m = mmap(NULL, (size_t)kPages * kPage, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(m != MAP_FAILED);
  for (unsigned i = 0; i < kPages; ++i)
    for (unsigned k = 0; k < kPage; k += 512) *(unsigned*)(m + (size_t)i * kPage + k) = seed * i * 2654435761u + k;
  return m;
}
static int intact(const unsigned char* page, unsigned seed, unsigned i) {
  for (unsigned k = 0; k < kPage; k += 512)
    if (*(const unsigned*)(page + k) != seed * i * 2654435761u + k) return 0;
  return 1;
}
static void* touch(void* m) {
  for (unsigned i = 0; i < kPages; i += 3) CHECK(intact((unsigned char*)m + (size_t)i * kPage, 5, i));
  return NULL;
}
int main(void) {
  unsigned char *a = make(1), *b = make(2), *c = make(3), *d = make(4), *e = make(5);
  ready_and_wait();
  pthread_t t[3];
  for (int i = 0; i < 3; ++i) t[i] = start_thread(touch, e);
  // Discarded pages are zero, their neighbours are not.
  CHECK(madvise(a + 100 * kPage, 1000 * kPage, MADV_DONTNEED) == 0);
  CHECK(a[100 * kPage] == 0 && a[1099 * kPage + 77] == 0 && intact(a + 99 * kPage, 1, 99) && intact(a + 1100 * kPage, 1, 1100));
  // A child has what is not there yet, too, and its own copy of it.
  pid_t child = fork();
  if (child == 0) {
    for (unsigned i = 0; i < kPages; i += 7) {
      if (!intact(b + (size_t)i * kPage, 2, i)) _exit(2);
      b[(size_t)i * kPage] = 9;
    }
    _exit(a[500 * kPage] != 0 || !intact(a + 2000 * kPage, 1, 2000));
  }
  // Moved to another place, and grown there.
  unsigned char* moved = mremap(c, (size_t)kPages * kPage, 2 * (size_t)kPages * kPage, MREMAP_MAYMOVE);
  CHECK(moved != MAP_FAILED);
  for (unsigned i = 0; i < kPages; i += 5) CHECK(intact(moved + (size_t)i * kPage, 3, i));
  CHECK(moved[(size_t)(kPages + 5) * kPage] == 0);
  // A hole, something new in it, another protection beside it.
  CHECK(munmap(d + 10 * kPage, 10 * kPage) == 0);
  unsigned char* fresh = mmap(d + 10 * kPage, 10 * kPage, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  CHECK(fresh == d + 10 * kPage && fresh[5 * kPage] == 0);
  CHECK(mprotect(d + 30 * kPage, 3 * kPage, PROT_READ) == 0);
  for (unsigned i = 20; i < kPages; ++i) CHECK(intact(d + (size_t)i * kPage, 4, i));
  // The kernel reads and writes it.
  int pipes[2];
  CHECK(pipe(pipes) == 0);
  CHECK(write(pipes[1], b + 3000 * kPage, kPage) == kPage && read(pipes[0], b + 3500 * kPage, kPage) == kPage);
  CHECK(intact(b + 3500 * kPage, 2, 3000));
  for (unsigned i = 0; i < kPages; ++i) CHECK(i == 3500 || intact(b + (size_t)i * kPage, 2, i));
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  for (int i = 0; i < 3; ++i) CHECK(pthread_join(t[i], NULL) == 0);
  return survived();
}
