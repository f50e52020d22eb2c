// A program must not see children, threads or descriptors that it did not make.
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "pause.h"

static int entries(const char* path) {
  DIR* dir = opendir(path);
  int n = 0;
  while (readdir(dir)) ++n;
  closedir(dir);
  return n - 2;
}

int main(int argc, char** argv) {
  wait_for_snapshot(argc, argv);
  int rc = waitpid(-1, NULL, WNOHANG);
  printf("waitpid: %d %s\n", rc, rc < 0 ? strerror(errno) : "");
  printf("threads: %d\n", entries("/proc/self/task"));
  printf("descriptors: %d\n", entries("/proc/self/fd"));
}
