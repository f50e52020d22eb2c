// Signal stacks (sigaltstack) that threads have in common: Varnish gives all its threads one, for
// the signal that ends them. The kernel would put the frames of two stopped threads in one place.
//
// Owner: none. Threads: any; async-signal-safe. Errors: none.
#pragma once

#include <cstdint>

namespace gpuckpt {

// SA_ONSTACK for handlers of ours; 0 from the moment on at which two threads were seen to have one
// signal stack, as handlers then run on the threads' own stacks.
uint64_t signal_stack_flag();

}  // namespace gpuckpt
