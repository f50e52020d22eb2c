// Functions of libc that the application reaches through the library. `syscall` and `prctl`
// (libc_wrappers.cc) compare the number and jump; the others are defined where their effects are
// noted.
//
// Owner: process-wide. Threads: any of the application's. Errors: as libc's.
#pragma once

#include <pthread.h>

namespace gpuckpt {
void find_wrapped_functions();  // in the constructor: nothing may be looked up in a handler
}

extern "C" {
// libc's own, or what another library put in its place.
extern long (*gpuckpt_real_syscall)(long number, ...) __attribute__((visibility("hidden")));
extern int (*gpuckpt_real_prctl)(int option, ...) __attribute__((visibility("hidden")));
extern int (*gpuckpt_real_setsockopt)(int fd, int level, int name, const void* value,
                                      unsigned bytes) __attribute__((visibility("hidden")));
extern int (*gpuckpt_real_inotify_add_watch)(int fd, const char* path, unsigned mask)
    __attribute__((visibility("hidden")));
extern int (*gpuckpt_real_pthread_cancel)(pthread_t thread) __attribute__((visibility("hidden")));
}
