// The program's environment without libc's functions: a program may have functions of the same
// names (shells do), and those need not work before its main has begun.
//
// Owner: an array that has grown stays mapped. Threads: reading as with getenv; writing in the
// constructor only. Errors: without memory the environment stays as it is.
#pragma once

namespace gpuckpt {

const char* environment_value(const char* name);  // null: not set
// Adds "NAME=value", or puts it in the place of the entry of that name. The text itself becomes
// part of the environment, as with putenv.
void put_in_environment(char* entry);

}  // namespace gpuckpt
