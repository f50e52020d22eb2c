// unshare(CLONE_NEWUSER) works only in a process with one thread: a resident helper thread would
// break it.
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "pause.h"

int main(int argc, char** argv) {
  wait_for_snapshot(argc, argv);
  int rc = unshare(CLONE_NEWUSER);
  printf("unshare: %s\n", rc == 0 ? "ok" : strerror(errno));
  return 0;
}
