// main ends in pthread_exit: the process ends when its last thread does, unless a library counts one
// more.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "pause.h"

static int count;
static char** arguments;
static void* last(void* unused) {
  usleep(100000);
  wait_for_snapshot(count, arguments);
  puts("last thread ends");
  fflush(stdout);
  return unused;
}

int main(int argc, char** argv) {
  count = argc;
  arguments = argv;
  pthread_t thread;
  pthread_create(&thread, NULL, last, NULL);
  pthread_detach(thread);
  puts("main leaves");
  fflush(stdout);
  pthread_exit(NULL);
}
