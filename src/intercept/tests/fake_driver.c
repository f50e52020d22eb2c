// A driver of a few functions that leaves as many traces in its process as a real one: heap,
// mappings, descriptors, a thread, keys, exit handlers. fake_stubs.c (generated) has all other
// entry points.
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
int __cxa_atexit(void (*)(void*), void*, void*);
extern void* __dso_handle;

struct entry {
  const char* base;
  int version;
  int per_thread;
  void* function;
};
extern const struct entry fake_entries[];
extern const int fake_entry_count;

struct stream {
  unsigned magic;
};

static char* at_load;
static int initialised, inits;
static pthread_key_t load_key, current_key;
static int wake_fd, pipes[2];
static char *banner, *line;
static size_t line_room;
static void* reservation;
static pthread_t watcher;
static int private_state = 7;

static void key_gone(void* p) { *(volatile char*)p = *(volatile char*)p; }
static void exit_handler(void* p) {
  // Runs only in the generation that registered it.
  if (p != at_load && strcmp(banner, "fake driver") != 0) abort();
  write(2, "", 0);
}

__attribute__((constructor)) static void at_start(void) {
  at_load = malloc(100);
  strcpy(at_load, "pinned");
  pthread_key_create(&load_key, key_gone);
  __cxa_atexit(exit_handler, at_load, &__dso_handle);
}

static void* watch(void* unused) {
  uint64_t n;
  while (read(wake_fd, &n, sizeof n) == sizeof n && n != 99) {
  }
  return unused;
}

EXPORT CUresult cuInit(unsigned flags) {
  (void)flags;
  if (initialised) return CUDA_SUCCESS;
  if (private_state != 7 || strcmp(at_load, "pinned") != 0) return CUDA_ERROR_UNKNOWN;
  if (pthread_getspecific(load_key)) return CUDA_ERROR_UNKNOWN;  // a dead generation's value
  wake_fd = eventfd(0, EFD_CLOEXEC);
  if (pipe2(pipes, O_CLOEXEC)) return CUDA_ERROR_OPERATING_SYSTEM;
  pthread_key_create(&current_key, NULL);
  banner = strdup("fake driver");
  if (pthread_setspecific(load_key, banner)) return CUDA_ERROR_UNKNOWN;
  FILE* f = fopen("/proc/self/maps", "r");
  line = malloc(8);
  line_room = 8;
  while (getline(&line, &line_room, f) > 0) {
  }
  fclose(f);
  reservation = mmap(NULL, 64 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  mmap(reservation, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
       0);
  pthread_create(&watcher, NULL, watch, NULL);
  __cxa_atexit(exit_handler, banner, &__dso_handle);
  at_load = realloc(at_load, 200);
  strcpy(at_load, "changed");
  private_state = 8;
  initialised = 1;
  inits++;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int* v) {
  *v = 13000;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetCurrent(CUcontext* c) {
  *c = pthread_getspecific(current_key);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxSetCurrent(CUcontext c) {
  pthread_setspecific(current_key, c);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamCreate(CUstream* s, unsigned flags) {
  struct stream* n = malloc(sizeof *n + flags);
  n->magic = 0x5717ea;
  *s = (CUstream)n;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamDestroy_v2(CUstream s) {
  ((struct stream*)s)->magic = 0;
  free(s);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamQuery(CUstream s) {
  return !s || ((struct stream*)s)->magic == 0x5717ea ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
EXPORT CUresult cuCtxSynchronize(void) {
  usleep(700 * 1000);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuImportExternalMemory(CUexternalMemory* memory,
                                       const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* what) {
  (void)what;
  *memory = malloc(16);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory memory) {
  free(memory);
  return CUDA_SUCCESS;
}
// What the realm test asks about: 0 reservation, 1 wake_fd, 2 heap block, 3 times cuInit ran since
// loading
EXPORT CUresult cuFuncGetAttribute(int* out, CUfunction_attribute a, CUfunction f) {
  (void)a;
  (void)f;
  *out = 0;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetName(char* name, int room, CUdevice what) {
  snprintf(name, (size_t)room, "%lx",
           what == 0   ? (long)reservation
           : what == 1 ? (long)wake_fd
           : what == 2 ? (long)banner
           : what == 3 ? (long)inits
                       : (long)at_load);
  return CUDA_SUCCESS;
}
EXPORT int cuNotInTheSpec(int a, int b) { return a * b; }
EXPORT int cuVDPAUGetDevice(int a) { return a + 1; }
EXPORT int cuGraphicsGLRegisterBuffer(int a) { return a + 1; }

EXPORT CUresult cuGetProcAddress_v2(const char* name, void** out, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult* status) {
  int best = -1, any = 0, has_pt = 0, want_pt = (flags & 2) != 0;
  *out = NULL;
  if (!strcmp(name, "cuNotInTheSpec")) {
    *out = (void*)cuNotInTheSpec;
    return CUDA_SUCCESS;
  }
  for (int i = 0; i < fake_entry_count; i++)
    if (!strcmp(fake_entries[i].base, name)) any = 1, has_pt |= fake_entries[i].per_thread;
  for (int i = 0; i < fake_entry_count; i++) {
    const struct entry* e = &fake_entries[i];
    if (strcmp(e->base, name) || e->version > version || e->per_thread != (want_pt && has_pt))
      continue;
    if (best < 0 || e->version > fake_entries[best].version) best = i;
  }
  if (best >= 0) *out = fake_entries[best].function;
  if (status) *status = best >= 0 ? 0 : any ? 2 : 1;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGetProcAddress(const char* name, void** out, int version, cuuint64_t flags) {
  CUdriverProcAddressQueryResult status;
  cuGetProcAddress_v2(name, out, version, flags, &status);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
