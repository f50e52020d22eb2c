// Thread-local variables of a library that was opened late, in threads older and younger than it.
#include <dlfcn.h>
#include "feature.h"
static volatile int opened, go;
static void* (*mine)(void);
static void* body(void* a) {
  while (!opened) sleep_ms(1);
  *(long*)mine() = (long)a;
  while (!go) sleep_ms(2);
  CHECK(*(long*)mine() == (long)a);
  return NULL;
}
int main(int argc, char** argv) {
  (void)argc;
  char path[4096];
  snprintf(path, sizeof(path), "%.4000s_library.so", argv[0]);
  pthread_t old = start_thread(body, (void*)1111);
  void* library = dlopen(path, RTLD_NOW);
  if (!library) puts(dlerror()), fflush(stdout);
  CHECK(library);
  mine = (void* (*)(void))dlsym(library, "my_variable");
  opened = 1;
  pthread_t young = start_thread(body, (void*)2222);
  *(long*)mine() = 3333;
  sleep_ms(20);
  ready_and_wait();
  go = 1;
  CHECK(*(long*)mine() == 3333);
  pthread_join(old, NULL), pthread_join(young, NULL);
  pthread_t later = start_thread(body, (void*)4444);
  pthread_join(later, NULL);
  CHECK(dlclose(library) == 0);
  return survived();
}
