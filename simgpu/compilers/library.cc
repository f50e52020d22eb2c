// Finds NVIDIA's compilers in the process by the addresses of the functions that the program looks
// up.
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "compilers/compilers.h"

extern "C" {
using Dlsym = void*(void*, const char*);
__attribute__((visibility("hidden"))) Dlsym* simgpu_compilers_libc_dlsym = nullptr;
__attribute__((visibility("hidden"))) void* simgpu_compilers_dlsym(void* handle, const char* name);
}

namespace simgpu::compilers {
namespace {

// The start of the object in memory, and its file.
struct Library {
  void* base;
  char path[4096];
};
Library g_libraries[kLibraries];
pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;

// Takes no lock, because other preloaded libraries call dlsym where they must not wait.
Dlsym* libc_dlsym() {
  if (!simgpu_compilers_libc_dlsym) {
    void* found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!found) found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");  // before glibc 2.34
    simgpu_compilers_libc_dlsym = reinterpret_cast<Dlsym*>(found);
  }
  return simgpu_compilers_libc_dlsym;
}

int library_of(void* function) {
  Dl_info object;
  if (!function || dladdr(function, &object) == 0 || !object.dli_fname) return -1;
  int found = -1;
  pthread_mutex_lock(&g_mutex);
  for (int k = 0; k < kLibraries && found < 0; ++k) {
    Library& l = g_libraries[k];
    if (!l.base && strlen(object.dli_fname) < sizeof l.path) {
      strcpy(l.path, object.dli_fname);
      l.base = object.dli_fbase;
    }
    if (l.base == object.dli_fbase && strcmp(l.path, object.dli_fname) == 0) found = k;
  }
  pthread_mutex_unlock(&g_mutex);
  return found;
}

}  // namespace

void* real_function(int library, const char* name) {
  if (library < 0) return nullptr;
  // The object is loaded already: the handle is closed again, so that the program's dlclose still
  // unloads it.
  void* handle = dlopen(g_libraries[library].path, RTLD_LAZY | RTLD_NOLOAD);
  if (!handle) return nullptr;
  void* found = libc_dlsym()(handle, name);
  dlclose(handle);
  return found;
}

int linked_library(const char* name, void* ours, void* caller) {
  void* found = nullptr;
  // A library opened with RTLD_LOCAL finds its own dependencies, which other objects do not.
  Dl_info object;
  if (dladdr(caller, &object) != 0 && object.dli_fname) {
    if (void* handle = dlopen(object.dli_fname, RTLD_LAZY | RTLD_NOLOAD); handle) {
      found = libc_dlsym()(handle, name);
      dlclose(handle);
    }
  }
  if (!found || found == ours) found = libc_dlsym()(RTLD_NEXT, name);
  return library_of(found);
}

uint32_t device_sm() {
  const char* text = getenv("SIMGPU_SM");
  const int sm = text ? atoi(text) : 0;
  return sm > 0 ? static_cast<uint32_t>(sm) : 120;  // as the simulated driver
}

bool code_runs(uint32_t sm) { return sm / 10 == device_sm() / 10 && sm <= device_sm(); }

uint32_t target_of(const char* text) {
  const char* at = strstr(text, ".target");
  if (!at) return 0;
  at += strspn(at + 7, " \t") + 7;
  return strncmp(at, "sm_", 3) == 0 ? static_cast<uint32_t>(atoi(at + 3)) : 0;
}

}  // namespace simgpu::compilers

using namespace simgpu::compilers;

// Returns -1 where libc's dlsym must answer, whose address is known from here on.
void* simgpu_compilers_dlsym(void* handle, const char* name) {
  void* const pass = reinterpret_cast<void*>(-1);
  Dlsym* libc = libc_dlsym();
  const bool nvrtc = name && strncmp(name, "nvrtcGet", 8) == 0;
  const bool linker =
      name && (strncmp(name, "nvJitLink", 9) == 0 || strncmp(name, "__nvJitLink", 11) == 0);
  if ((!nvrtc && !linker) || handle == RTLD_NEXT) return pass;
  // Our own exported functions are in the default scope; the ones that the caller means come after
  // them.
  void* found = libc(handle == RTLD_DEFAULT ? RTLD_NEXT : handle, name);
  const int library = library_of(found);
  if (library < 0) return found;
  void* ours = nvrtc ? nvrtc_function(name, library) : nvjitlink_function(name, library);
  return ours ? ours : found;
}
