// For test programs of the store that do not use Catch: they end at the first condition that is
// false, and print where.
//
// Owner: none. Threads: any. Errors: the program exits with 1.
#pragma once

#include <cstdio>
#include <cstdlib>

#define MUST(condition, ...)                                          \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      fprintf(stderr, __VA_ARGS__);                                   \
      fprintf(stderr, "\n");                                          \
      exit(1);                                                        \
    }                                                                 \
  } while (0)
#define MUST_OK(expression)                 \
  do {                                      \
    Status s_ = (expression);               \
    MUST(s_.ok(), "%s", s_.text().c_str()); \
  } while (0)
