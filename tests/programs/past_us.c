/* past_us HOW DRIVER: opens the driver (the path of its file) in a way that a preload does not
 * see, uses the device, says so and goes on when a file "go" is in its folder.
 *
 *   open       dlopen of the path
 *   dlmopen    in a name space of its own
 *   deepbind   a library beside this program, opened with RTLD_DEEPBIND, does
 *   mapped     the file is only mapped, and is no driver of this process
 *   table      in the usual way, but a thread calls it by a private table all the time */
#define _GNU_SOURCE
#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"

struct Table { /* simgpu/driver/base/own_table.cc */
  size_t bytes;
  CUcontext (*current)(void);
  int (*is_context)(CUcontext);
  unsigned long (*used)(CUdevice);
  int (*talk)(void);
};

static void* open_deep(const char* self, const char* driver) {
  char path[4096], folder[4096];
  snprintf(folder, sizeof folder, "%s", self);
  snprintf(path, sizeof path, "%.4000s/past_us_library.so", dirname(folder));
  void* library = dlopen(path, RTLD_NOW | RTLD_DEEPBIND);
  if (!library) return NULL;
  void* (*open_driver)(const char*) = (void* (*)(const char*))dlsym(library, "open_driver");
  return open_driver(driver);
}

static int gone_on(void) { return access("go", F_OK) == 0; }

static volatile int talks;

/* Without a pause: a snapshot that falls into one would not see it. */
static void* talk(void* unused) {
  const struct Table* table;
  CUuuid id;
  (void)unused;
  memcpy(id.bytes, "simgpu own table", 16);
  OK(DRIVER(cuGetExportTable)((const void**)&table, &id));
  for (unsigned i = 0; i % 64 || !gone_on(); ++i) table->talk(), talks = 1;
  return NULL;
}

static void map_file(const char* path) {
  int file = open(path, O_RDONLY);
  if (mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE, file, 0) == MAP_FAILED) exit(1);
  close(file);
  driver_handle = dlopen("libcuda.so.1", RTLD_NOW);
}

int main(int argc, char** argv) {
  CUdeviceptr memory;
  unsigned host = 0;
  pthread_t thread;
  if (argc != 3) return 2;
  const int table = strcmp(argv[1], "table") == 0;
  if (strcmp(argv[1], "open") == 0) driver_handle = dlopen(argv[2], RTLD_NOW);
  if (strcmp(argv[1], "dlmopen") == 0) driver_handle = dlmopen(LM_ID_NEWLM, argv[2], RTLD_NOW);
  if (strcmp(argv[1], "deepbind") == 0) driver_handle = open_deep(argv[0], argv[2]);
  if (strcmp(argv[1], "mapped") == 0) map_file(argv[2]);
  if (!driver_handle && !table) return fprintf(stderr, "%s\n", dlerror()), 1;
  start_driver();
  OK(DRIVER(cuMemAlloc_v2)(&memory, 4096));
  OK(DRIVER(cuMemsetD32_v2)(memory, 4711, 1024));
  if (table) pthread_create(&thread, NULL, talk, NULL);
  while (table && !talks) usleep(500);
  puts("at work");
  fflush(stdout);
  while (!gone_on()) usleep(2000);
  if (table) pthread_join(thread, NULL);
  while (table && access("end", F_OK) != 0) usleep(2000);
  OK(DRIVER(cuMemcpyDtoH_v2)(&host, memory, sizeof host));
  printf("%u\n", host);
  return 0;
}
