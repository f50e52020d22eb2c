// A snapshot that was asked for is taken before the program ends by exit, _exit or the return of
// main.
//
// Owner: none. Threads: the one that ends the program. Errors: none; the program ends in any case.
#pragma once

namespace gpuckpt {

void find_end_functions();  // in the constructor: a child of vfork may look nothing up

}  // namespace gpuckpt
