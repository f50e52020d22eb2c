// Programs that bring their own malloc and prepare it in their main function (images of GNU Common
// Lisp, as maxima's): a call of it before that ends them.
//
// Owner: none. Threads: the first one, before the program begins. Errors: none; what cannot be
// tried counts as working.
#pragma once

namespace gpuckpt {

// Whether memory can be allocated already. A malloc of the executable itself is tried in a copy of
// the process first.
bool malloc_works_already();

}  // namespace gpuckpt
