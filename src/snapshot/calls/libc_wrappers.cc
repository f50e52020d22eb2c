#include "snapshot/calls/libc_wrappers.h"

#include <dlfcn.h>

#define HIDDEN extern "C" __attribute__((visibility("hidden")))

namespace {

template <typename Fn>
Fn real(const char* name) {
  return reinterpret_cast<Fn>(dlsym(RTLD_NEXT, name));
}

// Another library's calls, made before the constructor has run.
long first_syscall(long number, long a, long b, long c, long d, long e, long f) {
  gpuckpt::find_wrapped_functions();
  return gpuckpt_real_syscall(number, a, b, c, d, e, f);
}
int first_prctl(int option, long a, long b, long c, long d) {
  gpuckpt::find_wrapped_functions();
  return gpuckpt_real_prctl(option, a, b, c, d);
}
int first_setsockopt(int fd, int level, int name, const void* value, unsigned bytes) {
  gpuckpt::find_wrapped_functions();
  return gpuckpt_real_setsockopt(fd, level, name, value, bytes);
}
int first_inotify_add_watch(int fd, const char* path, unsigned mask) {
  gpuckpt::find_wrapped_functions();
  return gpuckpt_real_inotify_add_watch(fd, path, mask);
}
int first_pthread_cancel(pthread_t thread) {
  gpuckpt::find_wrapped_functions();
  return gpuckpt_real_pthread_cancel(thread);
}

}  // namespace

long (*gpuckpt_real_syscall)(long, ...) = reinterpret_cast<long (*)(long, ...)>(first_syscall);
int (*gpuckpt_real_prctl)(int, ...) = reinterpret_cast<int (*)(int, ...)>(first_prctl);
int (*gpuckpt_real_setsockopt)(int, int, int, const void*, unsigned) = first_setsockopt;
int (*gpuckpt_real_inotify_add_watch)(int, const char*, unsigned) = first_inotify_add_watch;
int (*gpuckpt_real_pthread_cancel)(pthread_t) = first_pthread_cancel;

void gpuckpt::find_wrapped_functions() {
  gpuckpt_real_syscall = real<long (*)(long, ...)>("syscall");
  gpuckpt_real_prctl = real<int (*)(int, ...)>("prctl");
  gpuckpt_real_setsockopt = real<decltype(gpuckpt_real_setsockopt)>("setsockopt");
  gpuckpt_real_inotify_add_watch =
      real<decltype(gpuckpt_real_inotify_add_watch)>("inotify_add_watch");
  gpuckpt_real_pthread_cancel = real<decltype(gpuckpt_real_pthread_cancel)>("pthread_cancel");
}

// The arguments stay where they are, however many there are. What is written below the stack
// pointer is the number for eintr.h: libc's function pushes nothing before it makes the call. 54 is
// setsockopt, 131 sigaltstack, 231 exit_group, 250 keyctl, 254 inotify_add_watch, 317 seccomp, 425
// io_uring_setup, 446 landlock_restrict_self; of prctl, 22 is PR_SET_SECCOMP, 59
// PR_SET_SYSCALL_USER_DISPATCH.
asm(R"(
.text
.p2align 4
.globl syscall
.type syscall, @function
syscall:
    endbr64
    cmp $425, %rdi
    je gpuckpt_io_uring_setup
    cmp $317, %rdi
    je gpuckpt_seccomp
    cmp $131, %rdi
    je gpuckpt_sigaltstack
    cmp $231, %rdi
    je gpuckpt_exit_group
    cmp $250, %rdi
    je gpuckpt_keyctl
    cmp $446, %rdi
    je gpuckpt_landlock_restrict_self
    cmp $254, %rdi
    je gpuckpt_inotify_add_watch
    cmp $54, %rdi
    je gpuckpt_setsockopt
    mov %rdi, %rax
    xor %rsi, %rax
    mov %rdi, -8(%rsp)
    mov %rax, -16(%rsp)
    jmp *gpuckpt_real_syscall(%rip)
.size syscall, .-syscall
.globl prctl
.type prctl, @function
prctl:
    endbr64
    cmp $22, %edi
    je gpuckpt_prctl_seccomp
    cmp $59, %edi
    je gpuckpt_prctl_dispatch
    jmp *gpuckpt_real_prctl(%rip)
.size prctl, .-prctl
)");
