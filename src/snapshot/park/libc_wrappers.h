// `syscall` and `prctl` of libc, which the application reaches through us (libc_wrappers.cc): for
// all but a few numbers a comparison and a jump.
//
// Owner: process-wide. Threads: any of the application's. Errors: as libc's.
#pragma once

namespace gpuckpt {
void find_wrapped_functions();  // in the constructor: nothing may be looked up in a handler
}

extern "C" {
// libc's own, or what another library put in its place.
extern long (*gpuckpt_real_syscall)(long number, ...) __attribute__((visibility("hidden")));
extern int (*gpuckpt_real_prctl)(int option, ...) __attribute__((visibility("hidden")));
}
