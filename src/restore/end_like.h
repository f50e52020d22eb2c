// Ends the calling process, a child made for it, as another one ended: `code` and `status` as
// waitid(2) tells them (CLD_EXITED and its status; CLD_KILLED, CLD_DUMPED and the signal). It
// leaves no core behind.
//
// Owner: none. Threads: the only one of the child. Errors: where it cannot end in that way it
// exits.
#pragma once

namespace gpuckpt::restore {

[[noreturn]] void end_like(int code, int status);

}  // namespace gpuckpt::restore
