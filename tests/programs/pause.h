// PROGRAM [MS]: waits so long where a test takes its snapshot, and says so.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void wait_for_snapshot(int argc, char** argv) {
  if (argc < 2) return;
  puts("waiting");
  fflush(stdout);
  usleep((useconds_t)atoi(argv[1]) * 1000);
}
