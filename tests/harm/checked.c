// A program for compilers' sanitizers: two threads, one of which allocates all the time.
#include "../features/feature.h"

static void* allocate(void* unused) {
  for (;;) {
    char* block = malloc(100);
    block[3] = 1;
    free(block);
    sleep_ms(1);
  }
  return unused;
}

int main() {
  start_thread(allocate, NULL);
  char* mark = malloc(1000);
  mark[10] = 7;
  ready_and_wait();
  CHECK(mark[10] == 7);
  free(mark);
  return survived();
}
