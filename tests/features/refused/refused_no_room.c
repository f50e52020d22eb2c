// An address space in which nothing is free for what a restore needs beside the program: no machine could restore it, and
// the writer, which asks for that before it publishes, says so.
#include <sys/mman.h>
#include "feature.h"
static void reserve(uintptr_t from, uintptr_t to, int shift) {
  const uintptr_t size = (uintptr_t)1 << shift;
  for (uintptr_t at = from; at < to; at += size) {
    void* got = mmap((void*)at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == MAP_FAILED && shift > 20) reserve(at, at + size, shift - 10);
  }
}
int main(void) {
  for (uintptr_t at = (uintptr_t)4 << 30; at < (uintptr_t)1 << 40; at += (uintptr_t)1 << 30) reserve(at, at + ((uintptr_t)1 << 30), 30);
  reserve((uintptr_t)1 << 40, (uintptr_t)113 << 40, 40);
  ready_and_wait();
  return survived();
}
