// How a test program of this folder ends when a condition is false. _exit: the exit handlers of the
// library and of the driver are part of what is tested.
//
// Owner: none. Threads: any. Errors: the program exits with 1.
#pragma once

#include <stdio.h>
#include <unistd.h>

#define CHECK(what)                                              \
  do {                                                           \
    if (!(what)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); \
      _exit(1);                                                  \
    }                                                            \
  } while (0)
