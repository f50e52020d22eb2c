// Several features in one process: combined FEATURE.so... Each is set up in turn; when all wait, the
// program says that it is ready, and checks them in the same order when it is told to go on. The
// first runs in the first thread, each other one in a thread of its own.
#include <dlfcn.h>
#include "feature.h"

enum { kMost = 16 };
static struct Feature {
  int (*run)(int, char**);
  char* name[2];
  pthread_t thread;
  volatile int waits, ended, may_go_on;
} feature[kMost];
static int count;
static __thread struct Feature* own;

static void await(const volatile int* what) {
  while (!__atomic_load_n(what, __ATOMIC_ACQUIRE)) sleep_ms(1);
}

static void set(volatile int* what) { __atomic_store_n(what, 1, __ATOMIC_RELEASE); }

static void* run(void* of) {
  own = of;
  CHECK(own->run(1, own->name) == 0);
  set(&own->ended);
  return NULL;
}

static void set_up_others(void) {
  for (int i = 1; i < count; ++i) {
    feature[i].thread = start_thread(run, &feature[i]);
    await(&feature[i].waits);
  }
}

// What feature.h calls in ready_and_wait().
__attribute__((visibility("default"))) void combined_ready(void) {
  if (own == &feature[0]) {
    set_up_others();
    CHECK(write(1, "ready\n", 6) == 6);
    while (access("go_on", F_OK) != 0) sleep_ms(5);
    return;
  }
  set(&own->waits);
  await(&own->may_go_on);
}

int main(int argc, char** argv) {
  CHECK(argc > 1 && argc <= kMost);
  for (; count + 1 < argc; ++count) {
    void* library = dlopen(argv[count + 1], RTLD_NOW | RTLD_LOCAL);
    if (!library) absent(dlerror());
    feature[count].run = (int (*)(int, char**))dlsym(library, "feature_main");
    CHECK(feature[count].run);
    feature[count].name[0] = argv[count + 1];
  }
  run(&feature[0]);
  for (int i = 1; i < count; ++i) {
    set(&feature[i].may_go_on);
    await(&feature[i].ended);
    CHECK(pthread_join(feature[i].thread, NULL) == 0);
  }
  CHECK(write(1, "survived\n", 9) == 9);
  return 0;
}
