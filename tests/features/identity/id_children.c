// A restored program can fork, exec and wait; atexit handlers and stdio buffers are intact.
#include <spawn.h>
#include "feature.h"
extern char** environ;
static void last(void) { survived(); }
int main(void) {
  atexit(last);
  FILE* f = fopen("buffered", "w");
  CHECK(f && fputs("half a line", f) > 0);
  setenv("FROM_BEFORE", "yes", 1);
  ready_and_wait();
  int status;
  pid_t p = fork();
  if (p == 0) _exit(getppid() > 0 ? 17 : 18);
  CHECK(waitpid(p, &status, 0) == p && WEXITSTATUS(status) == 17);
  char* argv[] = {"sh", "-c", "test \"$FROM_BEFORE\" = yes && exit 19", NULL};
  CHECK(posix_spawn(&p, "/bin/sh", NULL, NULL, argv, environ) == 0);
  CHECK(waitpid(p, &status, 0) == p && WEXITSTATUS(status) == 19);
  CHECK(fputs(" and more\n", f) > 0 && fclose(f) == 0);
  char text[64] = "";
  CHECK(read(open("buffered", O_RDONLY), text, 63) == 21);
  return 0;
}
