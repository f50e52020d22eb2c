// libgpuckpt_client.a: the functions of gpuckpt.h for programs that link them. Each goes to the
// preloaded library, which exports the same names, and does nothing when there is none. These here
// are hidden, so that a look-up by name never finds them again.
#include "gpuckpt/gpuckpt.h"

#include <dlfcn.h>
#include <string.h>

// The preloaded library's function of this name, or a null pointer. Looked up once for each; a race
// finds the same twice.
#define FIND(name)                                   \
  static __typeof__(&name) found;                    \
  static int looked;                                 \
  if (!__atomic_load_n(&looked, __ATOMIC_ACQUIRE)) { \
    void* address = dlsym(RTLD_DEFAULT, #name);      \
    memcpy(&found, &address, sizeof(found));         \
    __atomic_store_n(&looked, 1, __ATOMIC_RELEASE);  \
  }                                                  \
  __typeof__(&name) const call = found

static void not_here(gpuckpt_result* result) {
  gpuckpt_result r;
  memset(&r, 0, sizeof(r));
  r.size = result->size < sizeof(r) ? result->size : sizeof(r);
  r.code = GPUCKPT_ABSENT;
  strcpy(r.text, "this process does not run under gpuckpt");
  memcpy(result, &r, r.size);
}

int gpuckpt_present(void) {
  FIND(gpuckpt_present);
  return call ? call() : 0;
}

unsigned gpuckpt_api_version(void) {
  FIND(gpuckpt_api_version);
  return call ? call() : 0;
}

unsigned gpuckpt_generation(void) {
  FIND(gpuckpt_generation);
  return call ? call() : 0;
}

gpuckpt_checkpoint* gpuckpt_checkpoint_begin(const gpuckpt_options* options) {
  FIND(gpuckpt_checkpoint_begin);
  return call ? call(options) : NULL;
}

int gpuckpt_checkpoint_poll(const gpuckpt_checkpoint* checkpoint) {
  FIND(gpuckpt_checkpoint_poll);
  return call ? call(checkpoint) : 1;
}

int gpuckpt_checkpoint_wait(gpuckpt_checkpoint* checkpoint, int64_t timeout_ms,
                            gpuckpt_result* result) {
  FIND(gpuckpt_checkpoint_wait);
  if (call) return call(checkpoint, timeout_ms, result);
  if (result) not_here(result);
  return 0;
}

void gpuckpt_checkpoint_free(gpuckpt_checkpoint* checkpoint) {
  FIND(gpuckpt_checkpoint_free);
  if (call) call(checkpoint);
}

int gpuckpt_checkpoint_now(const char* tag, gpuckpt_result* result) {
  FIND(gpuckpt_checkpoint_now);
  if (call) return call(tag, result);
  if (result) not_here(result);
  return GPUCKPT_ABSENT;
}

int gpuckpt_tag(const char* tag) {
  FIND(gpuckpt_tag);
  return call ? call(tag) : 0;
}

void gpuckpt_enter(const char* name) {
  FIND(gpuckpt_enter);
  if (call) call(name);
}

int gpuckpt_leave(void) {
  FIND(gpuckpt_leave);
  return call ? call() : 0;
}

int gpuckpt_on_snapshot(gpuckpt_hook hook, void* argument) {
  FIND(gpuckpt_on_snapshot);
  return call ? call(hook, argument) : 0;
}

int gpuckpt_on_resume(gpuckpt_hook hook, void* argument) {
  FIND(gpuckpt_on_resume);
  return call ? call(hook, argument) : 0;
}

int gpuckpt_on_restore(gpuckpt_hook hook, void* argument) {
  FIND(gpuckpt_on_restore);
  return call ? call(hook, argument) : 0;
}

int gpuckpt_remove_hook(int number) {
  FIND(gpuckpt_remove_hook);
  return call ? call(number) : 0;
}

int gpuckpt_exclude(void* address, size_t bytes) {
  FIND(gpuckpt_exclude);
  return call ? call(address, bytes) : 0;
}

int gpuckpt_include(void* address, size_t bytes) {
  FIND(gpuckpt_include);
  return call ? call(address, bytes) : 0;
}
