// Finds out whether libc's locks were free when the process was copied.
//
// Owner: none. Threads: the copied child. Errors: no answer counts as locked.
#pragma once

namespace gpuckpt {

// In a copy of the process: do malloc, stdio, the loader and thread creation answer, or did a
// parked thread hold one of their locks? Leaves the copy in any state; its memory must have been
// sent before.
bool libc_is_free();

}  // namespace gpuckpt
