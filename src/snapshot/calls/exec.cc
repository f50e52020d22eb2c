// exec: from the moment in which the new program begins until our library in it is ready, the
// signal by which processes of a job call each other would end it. So it is ignored before, which
// exec leaves as it is; the library's constructor listens again. (posix_spawn of libc does the same
// with its own signals.) A program without the library finds the signal ignored, which is what libc
// expects of it.

#include <alloca.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <unistd.h>

#include "base/syscall.h"
#include "gpuckpt/wire.h"
#include "snapshot/calls/app_signals.h"
#include "snapshot/control/state.h"
#include "snapshot/job/job_name.h"

extern char** environ;

namespace gpuckpt {
namespace {

template <typename Call>
int deaf(Call call) {
  sys::Sigaction before{}, ignore{};
  ignore.handler = 1;  // SIG_IGN
  if (library.ready) sys::sigaction(wire::kWakeSignal, &ignore, &before);
  const unsigned ignored = ignore_what_program_ignores();
  const int result = call();  // returns when it failed
  listen_again(ignored);
  if (library.ready) sys::sigaction(wire::kWakeSignal, &before, nullptr);
  return result;
}

template <typename Fn>
Fn next(Fn& cache, const char* name) {
  if (!cache) cache = reinterpret_cast<Fn>(dlsym(RTLD_NEXT, name));
  return cache;
}

int (*real_execve)(const char*, char* const*, char* const*);
int (*real_execvpe)(const char*, char* const*, char* const*);
int (*real_fexecve)(int, char* const*, char* const*);
int (*real_execveat)(int, const char*, char* const*, char* const*, int);

}  // namespace

// In a child of vfork no symbol may be looked up.
void find_exec_functions() {
  next(real_execve, "execve");
  next(real_execvpe, "execvpe");
  next(real_fexecve, "fexecve");
  next(real_execveat, "execveat");
}

}  // namespace gpuckpt

#define EXPORT extern "C" __attribute__((visibility("default")))
using namespace gpuckpt;

// The environment for the new program, with the name of the job; in this frame, because in a child
// of vfork there is no other place.
#define NAMED(envp)       \
  named_environment(envp, \
                    static_cast<char**>(alloca((environment_length(envp) + 3) * sizeof(char*))))

EXPORT int execve(const char* path, char* const* argv, char* const* envp) noexcept {
  envp = NAMED(envp);
  return deaf([&] { return next(real_execve, "execve")(path, argv, envp); });
}
EXPORT int execvpe(const char* file, char* const* argv, char* const* envp) noexcept {
  envp = NAMED(envp);
  return deaf([&] { return next(real_execvpe, "execvpe")(file, argv, envp); });
}
EXPORT int fexecve(int fd, char* const* argv, char* const* envp) noexcept {
  envp = NAMED(envp);
  return deaf([&] { return next(real_fexecve, "fexecve")(fd, argv, envp); });
}
EXPORT int execveat(int at, const char* path, char* const* argv, char* const* envp,
                    int flags) noexcept {
  envp = NAMED(envp);
  return deaf([&] { return next(real_execveat, "execveat")(at, path, argv, envp, flags); });
}
EXPORT int execv(const char* path, char* const* argv) noexcept {
  return execve(path, argv, environ);
}
EXPORT int execvp(const char* file, char* const* argv) noexcept {
  return execvpe(file, argv, environ);
}

// The arguments up to the null as an array in this frame, the null included. libc promises the
// compiler that `first` is none itself; programs pass it all the same.
#define COLLECT(first, after)                                         \
  const char* one = first;                                            \
  asm("" : "+r"(one));                                                \
  va_list list, counted;                                              \
  va_start(list, first);                                              \
  va_copy(counted, list);                                             \
  size_t n = one ? 1 : 0;                                             \
  while (n && va_arg(counted, char*)) ++n;                            \
  va_end(counted);                                                    \
  char** argv = static_cast<char**>(alloca((n + 1) * sizeof(char*))); \
  argv[0] = const_cast<char*>(one);                                   \
  for (size_t i = 1; i <= n; ++i) argv[i] = va_arg(list, char*);      \
  after;                                                              \
  va_end(list)

EXPORT int execl(const char* path, const char* first, ...) noexcept {
  COLLECT(first, (void)0);
  return execve(path, argv, environ);
}
EXPORT int execlp(const char* file, const char* first, ...) noexcept {
  COLLECT(first, (void)0);
  return execvpe(file, argv, environ);
}
EXPORT int execle(const char* path, const char* first, ...) noexcept {
  COLLECT(first, char* const* envp = va_arg(list, char* const*));
  return execve(path, argv, envp);
}
