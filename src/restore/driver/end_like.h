// Ends the calling process, a child made for it, as another one ended: `code` and `status` as
// waitid(2) tells them (CLD_EXITED and its status; CLD_KILLED, CLD_DUMPED and the signal). It
// leaves no core behind.
//
// Owner: none. Threads: the only one of the child. Errors: what does not end it by itself is an
// exit.
#pragma once

namespace gpuckpt::restore {

[[noreturn]] void end_like(int code, int status);

}  // namespace gpuckpt::restore
