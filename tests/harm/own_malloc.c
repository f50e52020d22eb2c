// Brings its own malloc, as images of GNU Common Lisp do: before main it has no memory for more
// than a little.
#include "../features/feature.h"

static char memory[8 << 20] __attribute__((aligned(16)));
static size_t used;
static volatile int begun;

void* malloc(size_t bytes) {
  if (!begun && bytes > 1024) *(volatile char*)16 = 0;
  const size_t head = 16, whole = (bytes + head + 15) & ~(size_t)15;
  const size_t at = __atomic_fetch_add(&used, whole, __ATOMIC_RELAXED);
  if (at + whole > sizeof(memory)) return NULL;
  *(size_t*)(memory + at) = bytes;
  return memory + at + head;
}

void free(void* p) { (void)p; }

// (By hand: the compiler makes calloc of malloc and memset, which would be this function itself.)
void* calloc(size_t count, size_t bytes) {
  char* p = malloc(count * bytes);
  for (volatile char* c = p; p && c < p + count * bytes; ++c) *c = 0;
  return p;
}

void* realloc(void* old, size_t bytes) {
  char* p = malloc(bytes);
  if (p && old) {
    const size_t had = *(size_t*)((char*)old - 16);
    for (size_t i = 0; i < (had < bytes ? had : bytes); ++i) ((volatile char*)p)[i] = ((char*)old)[i];
  }
  return p;
}

int main(void) {
  begun = 1;
  CHECK(malloc(100000) != NULL);
  ready_and_wait();
  return survived();
}
