/* The public C interface: what a program may say to gpuckpt, if it wants to.
 *
 * No program needs any of this: `gpuckpt run -- CMD` snapshots it as it is. This is for programs
 * that know when a good moment is, that have moments at which no snapshot may be taken, or that
 * hold something which a snapshot cannot bring back (a connection) or need not (a cache).
 *
 *   cc program.c $(pkg-config --cflags --libs gpuckpt)
 *
 * Linking. libgpuckpt_client.a is a few hundred bytes of calls that look for the preloaded library
 * when they are first used. A program that was not started under gpuckpt finds none, and everything
 * here is then inert: it costs a comparison, does nothing, and says so where there is an answer to
 * give. No library is needed at run time. Programs in other languages need not link anything: the
 * preloaded library exports these functions by their names (dlsym(RTLD_DEFAULT, ...)).
 *
 * Threads. Every function may be called by any thread at any time, hooks included, unless it says
 * otherwise. None of them may be called in a signal handler, nor between vfork and exec. A child
 * made by fork starts afresh: no checkpoints asked for, no tag, the hooks, excluded memory and the
 * forking thread's own sections as they were.
 *
 * Errors. Functions that can fail return 0 or a positive value when they did what they were asked,
 * else a negative errno value; errno is left alone. What goes wrong with a snapshot is told by
 * gpuckpt_result: a code (the exit codes of the command line) and a sentence. Nothing here ever
 * ends the program.
 *
 * Compatibility. Functions are only added, fields only at the ends of structs; `size` tells each
 * side how long the other's struct is.
 */
#ifndef GPUCKPT_GPUCKPT_H
#define GPUCKPT_GPUCKPT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Counts additions. */
#define GPUCKPT_API_VERSION 1

/* ------------------------------------------------------------------------------------------------
 * Where am I? */

/* 1: this process runs under gpuckpt and can be snapshotted; 0: everything here is inert. */
int gpuckpt_present(void);

/* The GPUCKPT_API_VERSION that the preloaded library was built with; 0: there is none. */
unsigned gpuckpt_api_version(void);

/* 0 in the process that was first started, one more after each restore. */
unsigned gpuckpt_generation(void);

/* ------------------------------------------------------------------------------------------------
 * A snapshot now */

enum gpuckpt_code {
  GPUCKPT_OK = 0,
  GPUCKPT_ERROR = 1,   /* anything without a code of its own */
  GPUCKPT_ABSENT = 10, /* this process does not run under gpuckpt */
  GPUCKPT_LOCKED = 11, /* another writer, or an exclusive lock, has the store */
  GPUCKPT_REFUSED =
      14, /* the program does something that could not be restored; the text names it */
  GPUCKPT_TIMEOUT =
      15 /* not possible in time; the text names the process or thread that prevented it */
};

/* One checkpoint that was asked for. Belongs to the caller until gpuckpt_checkpoint_free. */
typedef struct gpuckpt_checkpoint gpuckpt_checkpoint;

typedef struct gpuckpt_options {
  size_t size;         /* sizeof(gpuckpt_options) */
  const char* tag;     /* at most 127 bytes, copied; NULL: that of gpuckpt_tag, if any */
  uint64_t timeout_ms; /* until the program goes on; 0: GPUCKPT_TIMEOUT's */
} gpuckpt_options;

typedef struct gpuckpt_result {
  size_t size;            /* set it to sizeof(gpuckpt_result) before the call */
  int code;               /* enum gpuckpt_code */
  int restored;           /* 1: this is the restored process; see below */
  char id[64];            /* of the snapshot */
  char text[512];         /* a sentence when code is not 0 */
  uint64_t stall_us;      /* time in which the program could not make progress */
  uint64_t total_us;      /* from asking to durable */
  uint64_t logical_bytes; /* captured */
  uint64_t new_bytes;     /* of these, not in the store before */
  uint64_t stored_bytes;  /* what the store grew by, compressed */
} gpuckpt_result;

/* Asks for a snapshot and returns at once; it is taken by threads of gpuckpt's own while the caller
 * goes on. `options` may be NULL. Requests are served one after the other, each with a snapshot of
 * its own. Returns NULL when the process does not run under gpuckpt, or when 32 checkpoints have
 * not been freed yet: NULL may be given to the functions below, which then say which it was. */
gpuckpt_checkpoint* gpuckpt_checkpoint_begin(const gpuckpt_options* options);

/* 1: over, done or failed (NULL is); 0: not yet. */
int gpuckpt_checkpoint_poll(const gpuckpt_checkpoint* checkpoint);

/* Waits until the snapshot is durable (what it holds survives the machine), or has failed, or
 * `timeout_ms` are over (negative: without end). `result` may be NULL. Returns 0 when it is over,
 * whatever came of it (that is in result->code), -ETIMEDOUT when not, -EDEADLK when the calling
 * thread is inside a critical section, for which the snapshot waits.
 *
 * In the restored process the call returns as well, like fork(2) in the child: the checkpoint that
 * the program was restored from is over there, with code 0, restored = 1, and its id. Checkpoints
 * that had not begun by then are taken of the restored process. */
int gpuckpt_checkpoint_wait(gpuckpt_checkpoint* checkpoint, int64_t timeout_ms,
                            gpuckpt_result* result);

/* Gives the checkpoint back. One that is not over is carried out all the same. NULL is ignored. */
void gpuckpt_checkpoint_free(gpuckpt_checkpoint* checkpoint);

/* All of the above in one. Returns result->code (`result` may be NULL), or -EDEADLK. */
int gpuckpt_checkpoint_now(const char* tag, gpuckpt_result* result);

/* The next snapshot, whatever asks for it, has this tag unless it is given another. It stays until
 * a snapshot is durable; a later call replaces it, NULL or "" takes it back. At most 127 bytes,
 * copied. Returns 0, or -EINVAL (too long), or -EAGAIN (another thread is just setting one). */
int gpuckpt_tag(const char* tag);

/* ------------------------------------------------------------------------------------------------
 * Critical sections
 *
 * While any thread is inside one no snapshot is taken. A snapshot that is due waits for it: new
 * sections are held up meanwhile, for at most GPUCKPT_GATE (200 ms); then they are let in again and
 * the snapshot tries once more, until its timeout. One that gives up names the section and the
 * thread. Sections nest, are counted per thread, and cost some ten nanoseconds. A thread inside may
 * call the driver, take locks, begin a checkpoint: only not wait for one. A thread that ends has
 * left its sections. */

/* `name` is for messages: at most 47 bytes of it, copied. May be NULL. */
void gpuckpt_enter(const char* name);
/* Returns 0, or -EPERM when the calling thread is inside none. */
int gpuckpt_leave(void);

/* ------------------------------------------------------------------------------------------------
 * Hooks
 *
 * For every attempt at a snapshot:   on_snapshot hooks -> snapshot -> on_resume hooks
 * and in a process restored from it:                               -> on_restore hooks
 *
 * All hooks of one attempt run on one thread, which gpuckpt makes for them; in the restored process
 * it is the same thread that went into the snapshot, so that a mutex which an on_snapshot hook
 * locks may be unlocked by the on_resume or on_restore hook. Every run of the on_snapshot hooks is
 * followed by exactly one of the others, whatever becomes of the snapshot.
 *
 * on_snapshot hooks run in the reverse order of their registration, the others in its order. They
 * are ordinary code: they may call libc and the driver, take locks, and wait for other threads of
 * the program, which run all the while (in a restored process: the program goes on while on_restore
 * hooks run. A thread that must not run before they are done takes a lock in on_snapshot). Every
 * signal is blocked. They may not end their thread, jump out, or wait for a checkpoint. An
 * on_snapshot hook that does not return in time fails the attempt. A snapshot may be retried, so
 * there can be several rounds of hooks before it is done. */

typedef void (*gpuckpt_hook)(void* argument);

/* Each returns a number > 0 for gpuckpt_remove_hook, 0 when inert (the hook will never be called),
 * or -EINVAL (no hook) or -ENOSPC (64 are registered). `argument` must live as long as the hook. */
int gpuckpt_on_snapshot(gpuckpt_hook hook, void* argument);
int gpuckpt_on_resume(gpuckpt_hook hook, void* argument);
int gpuckpt_on_restore(gpuckpt_hook hook, void* argument);

/* It may still be running when this returns, if a snapshot is under way. Returns 0, or -ENOENT; 0
 * as a number is ignored. */
int gpuckpt_remove_hook(int number);

/* ------------------------------------------------------------------------------------------------
 * Memory that need not be saved
 *
 * Private anonymous memory (malloc, mmap) whose contents are not worth keeping: caches, scratch
 * buffers. Whole pages inside [address, address + bytes) are left out of every snapshot from now
 * on, and read as zeros in a restored process, in which they are still excluded. Device and shared
 * memory and files cannot be excluded and are saved as before. (Excluded pages are left out of core
 * dumps too: the kernel's MADV_DONTDUMP is how they are marked, and munmap takes the mark away.
 * free() does not: include memory again before it is freed.) The next snapshot after a call of
 * gpuckpt_include reads all memory. */

/* Returns 0 (also when inert), -EINVAL when there is no whole page in it, -ENOMEM when not all of
 * it is mapped, -ENOSPC when 256 ranges are excluded, which have not been included again. */
int gpuckpt_exclude(void* address, size_t bytes);
/* Takes back an exclusion, of the same range. Returns 0 (also when inert) or -ENOENT. */
int gpuckpt_include(void* address, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif /* GPUCKPT_GPUCKPT_H */
