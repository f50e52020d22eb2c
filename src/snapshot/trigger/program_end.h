// The end of the program, as far as it comes by exit, _exit or the return of main: a snapshot that
// was asked for before comes first.
//
// Owner: none. Threads: the one that ends the program. Errors: none; the program ends in any case.
#pragma once

namespace gpuckpt {

void find_end_functions();  // in the constructor: a child of vfork may look nothing up

}  // namespace gpuckpt
