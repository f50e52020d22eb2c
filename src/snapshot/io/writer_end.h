// Says how the writer ended, when it ended without a message. It is no child of the application's,
// so that only a descriptor of it (pidfd) can tell, on Linux 6.15 and later.
//
// Owner: the caller's descriptor and buffer. Threads: the I/O thread. Errors: a text that says so.
#pragma once

#include <cstddef>

namespace gpuckpt {

// "it was killed by signal 9 (...)", or that the cause is unknown. Waits a moment for the kernel to
// know.
void describe_end(int pidfd, char* to, size_t room);

}  // namespace gpuckpt
