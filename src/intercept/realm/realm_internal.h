// Between the files of the realm: each keeps one kind of thing the driver has in this process.
//
// Owner: the realm. Threads: any; the files that keep lists have a lock each. Errors: as libc's
// calls, for the driver is the caller.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/mutex.h"
#include "base/syscall.h"

#include "intercept/realm/realm.h"

namespace gpuckpt {

// -- realm_heap.cc: the private heap. Blocks are 16-byte aligned.
namespace realm_heap {
void* allocate(size_t bytes, size_t align = 16);
void* allocate_zeroed(size_t bytes);
void release(void* block);         // must be contains(block)
size_t usable(const void* block);  // must be contains(block)
bool contains(const void* p);      // in any generation's heap
void new_generation();             // PARKED: starts beyond the high-water mark
void after_fork();
bool unlocked();
}  // namespace realm_heap

// -- realm_maps.cc: what the driver mapped.
namespace realm_maps {
void* map(void* hint, size_t bytes, int prot, int flags, int fd, long offset);
int unmap(void* at, size_t bytes);
void* remap(void* at, size_t old_bytes, size_t bytes, int flags, void* to);
int protect(void* at, size_t bytes, int prot);
void attached(void* at, size_t bytes);  // mapped by other means than mmap
void detached(const void* at);
bool owns(uint64_t at, uint64_t bytes);                       // PARKED
bool owns_first(uint64_t at, uint64_t end, uint64_t* until);  // PARKED
void rewind();                                                // PARKED
void expect_at(uint64_t address);
bool release_placeholders();
void after_fork();
bool unlocked();
}  // namespace realm_maps

// -- realm_fds.cc: descriptors.
namespace realm_fds {
int opened(int fd);  // remembers and returns it; negative values pass
void closed(int fd);
bool owns(int fd);
void rewind();
}  // namespace realm_fds

// -- realm_threads.cc: threads, keys, handlers.
namespace realm_threads {
int create(pthread_t* thread, const pthread_attr_t* attr, void* (*routine)(void*), void* arg);
void ended(pthread_t thread);
int key_create(pthread_key_t* key, void (*destructor)(void*));
int key_delete(pthread_key_t key);
int at_exit(void (*function)(void*), void* arg, void* dso);
int register_atfork(void (*prepare)(), void (*parent)(), void (*child)(), void* dso);
bool find(int tid, uint64_t* pc, uint64_t* sp);  // PARKED
void rewind();                                   // PARKED
void after_fork();
}  // namespace realm_threads

// -- realm_hooks.cc: replacements of libc's functions and the reviewed list.
namespace realm_hooks {
// Our function for an import of the driver; null: not replaced. `reviewed`: it is on one of the
// lists.
void* replacement(const char* import, bool* reviewed);
StrayIoctls stray_ioctls();
}  // namespace realm_hooks

// -- realm.cc
// Is the calling thread inside dlopen of the driver (its constructors)?
bool realm_loading_here();
// libc's dlopen for an object of the driver.
void* realm_dlopen(const char* file, int mode);
// A block that libc allocated for the driver before its imports were rewritten: must stay where it
// is for ever.
bool realm_is_pinned(const void* block);
// Rewrites and remembers one more object of the driver (libnvidia-*.so the driver loads).
// Idempotent.
void realm_adopt_object(void* handle);

}  // namespace gpuckpt
