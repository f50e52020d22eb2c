// Nothing special, under limits and masks that the test sets: some memory, a thread, a file.
#include "../features/feature.h"

static void* sleep_until_told(void* unused) {
  while (access("go_on", F_OK) != 0) sleep_ms(5);
  return unused;
}

int main() {
  char* memory = malloc(3 << 20);
  memset(memory, 5, 3 << 20);
  pthread_t thread = start_thread(sleep_until_told, NULL);
  ready_and_wait();
  CHECK(pthread_join(thread, NULL) == 0);
  for (int i = 0; i < 3 << 20; i += 4096) CHECK(memory[i] == 5);
  return survived();
}
