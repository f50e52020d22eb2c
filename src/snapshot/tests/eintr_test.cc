// Fear: a call of the application returns EINTR because of our signal. The ways in which libraries
// make their calls, each interrupted by a handler that repairs it: the number in the instruction,
// and as glibc has it from 2.41 on.
#include "snapshot/park/eintr.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

using namespace gpuckpt;

// glibc 2.41's poll, __syscall_cancel, __internal_syscall_cancel and __syscall_cancel_arch, as
// Debian 13 has them.
extern "C" {
long poll_by_number(pollfd*, unsigned long, int), poll_of_glibc(pollfd*, unsigned long, int);
long poll_without_frame(pollfd*, unsigned long, int);
long noted_syscall(long, ...), other_note_syscall(long, ...);
int of_one_thread = 1;
asm(R"(
.text
poll_by_number:
  mov $7, %eax
  syscall
  ret
poll_of_glibc:
  sub $16, %rsp
  movslq %edx, %rdx
  xor %r9d, %r9d
  xor %r8d, %r8d
  push $7
  xor %ecx, %ecx
  call cancel_point
  add $24, %rsp
  ret
cancel_point:
  sub $16, %rsp
  push 24(%rsp)
  call internal_cancel_point
  pop %rdx
  pop %rcx
  add $8, %rsp
  ret
internal_cancel_point:
  push %rbx
  mov %rcx, %r10
  cmpl $0, of_one_thread(%rip)
  jne 1f
  push %r9
  lea of_one_thread(%rip), %r11
  mov %rcx, %r9
  mov %rsi, %rcx
  push %r8
  mov 32(%rsp), %rsi
  mov %rdx, %r8
  mov %rdi, %rdx
  mov %r11, %rdi
  call cancel_arch
  pop %rcx
  pop %rsi
  pop %rbx
  ret
1:
  mov 16(%rsp), %rax
  syscall
  pop %rbx
  ret
cancel_arch:
  mov %rdi, %r11
  mov %rsi, %rax
  mov %rdx, %rdi
  mov %rcx, %rsi
  mov %r8, %rdx
  mov %r9, %r10
  mov 8(%rsp), %r8
  mov 16(%rsp), %r9
  mov %r11, 8(%rsp)
  syscall
  ret
poll_without_frame:
  push $0
  push $0
  mov %rdx, %r8
  xor %r9d, %r9d
  mov %rsi, %rcx
  mov %rdi, %rdx
  mov $7, %esi
  lea of_one_thread(%rip), %rdi
  lea cancel_arch(%rip), %rax
  call *%rax
  pop %rdx
  pop %rdx
  ret
noted_syscall:
  mov %rdi, %rax
  xor %rsi, %rax
  mov %rdi, -8(%rsp)
  mov %rax, -16(%rsp)
  jmp *syscall@GOTPCREL(%rip)
other_note_syscall:
  movq $39, -8(%rsp)
  movq $38, -16(%rsp)
  jmp *syscall@GOTPCREL(%rip)
)");
}

namespace {

int interrupted;

void handler(int, siginfo_t*, void* context) {
  ++interrupted;
  repair_eintr_by_code(static_cast<ucontext_t*>(context));
}

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

void expect(bool good, const char* what, long result) {
  if (good) return;
  fprintf(stderr, "%s: %ld\n", what, result);
  exit(1);
}

void interrupt_once() {
  itimerval soon{};
  soon.it_value.tv_usec = 20000;
  setitimer(ITIMER_REAL, &soon, nullptr);
}

void goes_on(const char* what, long (*call)(pollfd*, unsigned long, int)) {
  interrupted = 0;
  const double begin = now();
  interrupt_once();
  const long result = call(nullptr, 0, 100);
  expect(result == 0 && interrupted == 1 && now() - begin > 0.115, what, result);
}

}  // namespace

int main() {
  struct sigaction a = {};
  a.sa_sigaction = handler;
  a.sa_flags = SA_SIGINFO;
  sigaction(SIGALRM, &a, nullptr);
  goes_on("the number in the instruction", poll_by_number);
  goes_on("glibc's, one thread", poll_of_glibc);
  of_one_thread = 0;
  goes_on("glibc's, several threads", poll_of_glibc);
  goes_on("this machine's",
          [](pollfd* p, unsigned long n, int timeout) -> long { return poll(p, n, timeout); });
  goes_on("syscall(3)", [](pollfd* p, unsigned long n, int timeout) -> long {
    return noted_syscall(SYS_poll, p, n, timeout);
  });
  // A note of another call counts for nothing.
  interrupt_once();
  const long other = other_note_syscall(SYS_poll, nullptr, 0, 100);
  expect(other == -1 && errno == EINTR, "syscall(3) with another call's note", other);
  // Whose caller is not known gets its EINTR: another call is not made.
  long (*volatile call)(pollfd*, unsigned long, int) =
      poll_without_frame;  // not called by its name
  interrupt_once();
  const long result = call(nullptr, 0, 100);
  expect(result == -4, "without a frame", result);
  puts("none was cut short");
}
