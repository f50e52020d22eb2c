// Thousands of descriptors that look alike: eventfds, which all have one inode, and one file opened
// again and again, some of them duplicates of others. Which are, and that a snapshot does not
// compare all with all.
#include <sys/eventfd.h>
#include "feature.h"
enum { kKind = 3000, kEach = 100 };
static int event[kKind], file[kKind], event_copy[kKind], file_copy[kKind];
static long used_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
int main(void) {
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = limit.rlim_max;
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  if (limit.rlim_cur < 2 * kKind + 2 * kKind / kEach + 200) absent("descriptors");
  int data = open("alike.data", O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(data >= 0 && ftruncate(data, kKind) == 0 && close(data) == 0);
  for (int i = 0; i < kKind; ++i) {
    CHECK((event[i] = eventfd(0, EFD_NONBLOCK)) >= 0);
    CHECK((file[i] = open("alike.data", O_RDONLY)) >= 0);
    event_copy[i] = i % kEach ? -1 : dup(event[i]);
    file_copy[i] = i % kEach ? -1 : dup(file[i]);
  }
  const long before = used_ms();
  ready_and_wait();
  // To compare all with all takes millions of system calls. A restored process begins at 0.
  const long used = used_ms() - before;
  if (used > 5000) dprintf(1, "the snapshot took %ld ms of the processor\n", used);
  CHECK(used <= 5000);
  uint64_t n = 1;
  for (int i = 0; i < kKind; ++i) {
    n = (uint64_t)i + 1;
    CHECK(write(event[i], &n, 8) == 8 && lseek(file[i], i, SEEK_SET) == i);
  }
  for (int i = 0; i < kKind; ++i) {
    CHECK(event_copy[i] < 0 || lseek(file_copy[i], 0, SEEK_CUR) == i);
    CHECK(lseek(file[i], 0, SEEK_CUR) == i);
    CHECK(read(event_copy[i] < 0 ? event[i] : event_copy[i], &n, 8) == 8 && n == (uint64_t)i + 1);
    CHECK(read(event[i], &n, 8) == -1 && errno == EAGAIN);
  }
  return survived();
}
