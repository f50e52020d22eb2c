// Contexts of kernel AIO at their old addresses.
//
// Owner: the restored process has them. Threads: the first thread, before the others exist; raw
// system calls only. Errors: -errno.
#pragma once

#include "gpuckpt/process_format.h"

namespace gpuckpt {

// `events`: what is unread. 0, or the error that io_setup gave (-E2BIG: rings are larger here).
long restore_aio(const process::Aio&, const char* events);

}  // namespace gpuckpt
