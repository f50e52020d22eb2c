/* Opened with RTLD_DEEPBIND its dlopen is libc's, whatever was preloaded. */
#include <dlfcn.h>

void* open_driver(const char* path) { return dlopen(path, RTLD_NOW); }
