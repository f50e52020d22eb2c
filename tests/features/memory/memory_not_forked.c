// Memory that is kept from children (MADV_DONTFORK, as JavaScript engines and RDMA libraries do),
// in many pieces, some of them mapped while the snapshot is being taken: all of it is in the image.
#include <sys/mman.h>
#include "feature.h"
enum { kPiece = 16 << 10, kKept = 1500, kSlots = 96 };
static unsigned char* kept[kKept];
static unsigned char* slot[kSlots];
static unsigned filled[kSlots], running = 1, rounds;
static unsigned char* map(int advice) {
  // Twice as much, so that no piece is one mapping with its neighbour.
  unsigned char* m = mmap(NULL, 2 * kPiece, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(m != MAP_FAILED && mprotect(m, kPiece, PROT_READ | PROT_WRITE) == 0);
  CHECK(madvise(m, kPiece, advice) == 0);
  return m;
}
static void fill(unsigned char* m, unsigned seed) {
  for (unsigned i = 0; i < kPiece; i += 512) *(unsigned*)(m + i) = seed * 2654435761u + i;
}
static int holds(const unsigned char* m, unsigned seed) {
  for (unsigned i = 0; i < kPiece; i += 512)
    if (*(const unsigned*)(m + i) != seed * 2654435761u + i) return 0;
  return 1;
}
static void* churn(void* unused) {
  for (unsigned n = 1; __atomic_load_n(&running, __ATOMIC_RELAXED); ++n, ++rounds) {
    const unsigned i = n % kSlots;
    if (slot[i]) CHECK(holds(slot[i], filled[i]) && munmap(slot[i], 2 * kPiece) == 0);
    slot[i] = map(n % 5 == 4 ? MADV_WIPEONFORK : MADV_DONTFORK);
    fill(slot[i], filled[i] = n);
  }
  for (unsigned i = 0; i < kSlots; ++i) CHECK(!slot[i] || holds(slot[i], filled[i]));
  return unused;
}
int main(void) {
  for (unsigned i = 0; i < kKept; ++i) fill(kept[i] = map(MADV_DONTFORK), i + 7);
  pthread_t t = start_thread(churn, NULL);
  ready_and_wait();
  const unsigned before = rounds;
  for (int i = 0; i < 200 && rounds == before; ++i) sleep_ms(5);
  __atomic_store_n(&running, 0, __ATOMIC_RELAXED);
  CHECK(pthread_join(t, NULL) == 0);
  for (unsigned i = 0; i < kKept; ++i) CHECK(holds(kept[i], i + 7));
  // And still kept from children.
  pid_t child = fork();
  if (child == 0) {
    unsigned char there;
    _exit(mincore(kept[3], kPiece, &there) == 0 || errno != ENOMEM);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  return survived();
}
