// Contexts of kernel AIO at their old addresses.
//
// Owner: the restored process has them. Threads: the first thread, before the others exist; raw
// system calls only. Errors: -errno.
#pragma once

#include "gpuckpt/process_format.h"

namespace gpuckpt {

// `events`: the completions that the program has not read. Returns 0, or the error of io_setup
// (-E2BIG: rings are larger on this kernel).
long restore_aio(const process::Aio&, const char* events);

}  // namespace gpuckpt
