// The session folder (base/files/session_folder.h) as this process makes it.
//
// Owner: the caller's buffer. Threads: the I/O thread. Errors: false, and the log says why.
#pragma once

#include <cstddef>

namespace gpuckpt {

// The first of the session folders in which no other user can put a socket, made when it is not
// there. Where GPUCKPT_SESSION_DIR is no longer usable, it is one of those for which nothing is
// set: the command line looks there as well. False: there is none, and the log says whose the last
// one is.
bool make_session_folder(char* dir, size_t room);

}  // namespace gpuckpt
