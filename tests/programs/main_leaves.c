// main ends in pthread_exit: the process ends when its last thread does, unless somebody counts one
// more.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void* last(void* unused) {
  usleep(100000);
  puts("last thread ends");
  fflush(stdout);
  return unused;
}

int main() {
  pthread_t thread;
  pthread_create(&thread, NULL, last, NULL);
  pthread_detach(thread);
  puts("main leaves");
  fflush(stdout);
  pthread_exit(NULL);
}
