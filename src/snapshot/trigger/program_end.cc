#include "snapshot/trigger/program_end.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/syscall.h"
#include "base/text/log.h"
#include "snapshot/calls/libc_wrappers.h"
#include "snapshot/control/state.h"
#include "snapshot/trigger/sender.h"

namespace gpuckpt {
namespace {

constexpr uint64_t kLookUs = 100000;

// A snapshot by the timer does not delay the end of the program: no user waits for it.
constexpr uint32_t kAskedFor =
    kWantSignal | kWantCommand | kWantTerm | kWantProgram | kWantJoin | kWantRelay;

bool snapshot_is_awaited() {
  const uint32_t wanted = library.wanted;
  return wanted & kRunning && (wanted | library.serving) & kAskedFor;
}

// The calling thread takes part in the snapshot as any other thread; in the restored process it
// continues to the program's end.
void before_the_end() {
  if (!library.ready || library.deaf || sys::getpid() != library.pid) return;
  const uint32_t generation = library.generation;
  const uint64_t until = sys::now_us() + library.config.timeout_ms * 1000;
  while (snapshot_is_awaited() && library.generation == generation) {
    if (sys::now_us() > until) {
      log_line(LogLevel::kWarn,
               "the program ends, and the snapshot that was asked for is not done after %lu s "
               "(GPUCKPT_TIMEOUT): there is none",
               library.config.timeout_ms / 1000);
      break;
    }
    if (const uint32_t tid = library.coordinator_tid)
      sys::futex_wait(&library.coordinator_tid, tid, kLookUs, true);
    else
      sys::sleep_us(1000);
  }
  let_signals_arrive();
}

void (*real_exit)(int);
void (*real_quick_exit)(int);
void (*real__exit)(int);

template <typename Fn>
void find(Fn& to, const char* name) {
  if (!to) to = reinterpret_cast<Fn>(dlsym(RTLD_NEXT, name));
}

}  // namespace

void find_end_functions() {
  find(real_exit, "exit");
  find(real_quick_exit, "quick_exit");
  find(real__exit, "_exit");
}

}  // namespace gpuckpt

using namespace gpuckpt;
#define EXPORT extern "C" __attribute__((visibility("default")))

// Calls the program's main and waits. Some programs come back from main by a jump to its return
// address, with whatever stack pointer they have by then (Free Pascal's): libc does not need it to
// call exit. So this function takes its own from memory.
extern "C" {
__attribute__((visibility("hidden"))) int (*gpuckpt_program_main)(int, char**, char**);
__attribute__((visibility("hidden"))) uint64_t gpuckpt_main_stack;
__attribute__((visibility("hidden"))) void gpuckpt_main_is_over() { before_the_end(); }
__attribute__((visibility("hidden"))) int gpuckpt_main_and_wait(int, char**, char**);
}
asm(R"(
.text
.globl gpuckpt_main_and_wait
.hidden gpuckpt_main_and_wait
.type gpuckpt_main_and_wait, @function
gpuckpt_main_and_wait:
  .cfi_startproc
  sub $8, %rsp
  .cfi_adjust_cfa_offset 8
  mov %rsp, gpuckpt_main_stack(%rip)
  call *gpuckpt_program_main(%rip)
  mov gpuckpt_main_stack(%rip), %rsp
  mov %eax, (%rsp)
  call gpuckpt_main_is_over
  mov (%rsp), %eax
  add $8, %rsp
  .cfi_adjust_cfa_offset -8
  ret
  .cfi_endproc
.size gpuckpt_main_and_wait, . - gpuckpt_main_and_wait
)");

EXPORT void exit(int status) noexcept {
  before_the_end();
  find_end_functions();
  real_exit(status);
  sys::exit_group(status);
}
EXPORT void quick_exit(int status) noexcept {
  before_the_end();
  find_end_functions();
  real_quick_exit(status);
  sys::exit_group(status);
}
EXPORT void _exit(int status) {
  before_the_end();
  if (real__exit) real__exit(status);
  sys::exit_group(status);
}
EXPORT void _Exit(int status) noexcept { _exit(status); }

extern "C" __attribute__((visibility("hidden"))) long gpuckpt_exit_group(long, int status) {
  _exit(status);
}

// main returns into libc's own exit, whose handlers (the CUDA runtime's first of all) would take
// apart what a snapshot is about.
EXPORT int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv,
                             void (*init)(), void (*fini)(), void (*rtld_fini)(), void* stack_end) {
  using Start =
      int (*)(int (*)(int, char**, char**), int, char**, void (*)(), void (*)(), void (*)(), void*);
  const auto real = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
  gpuckpt_program_main = main;
  return real(gpuckpt_main_and_wait, argc, argv, init, fini, rtld_fini, stack_end);
}
