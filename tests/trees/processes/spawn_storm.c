// Other programs by posix_spawn, vfork, system and popen, from several threads at once, while the
// snapshot is taken.
#include <spawn.h>
#include "tree.h"
static const char* self;
static int done(void) { return access("go_on", F_OK) == 0; }
static void* spawn(void* unused) {
  (void)unused;
  char* const arguments[] = {(char*)self, "5", NULL};
  for (int last = 0; !last;) {
    last = done();
    pid_t pid;
    CHECK(posix_spawn(&pid, self, NULL, NULL, arguments, environ) == 0);
    CHECK(wait_status(pid) == 5);
    sleep_ms(5);
  }
  return NULL;
}
static void* fork_virtually(void* unused) {
  (void)unused;
  for (int last = 0; !last;) {
    last = done();
    pid_t pid = vfork();
    if (pid == 0) {
      execl(self, self, "6", (char*)NULL);
      _exit(1);
    }
    CHECK(pid > 0 && wait_status(pid) == 6);
    sleep_ms(5);
  }
  return NULL;
}
static void* shell(void* unused) {
  (void)unused;
  for (int last = 0; !last;) {
    last = done();
    char command[600], line[64] = "";
    snprintf(command, sizeof command, "%s 7", self);
    const int status = system(command);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    FILE* f = popen("echo from the shell; exit 3", "r");
    CHECK(f && fgets(line, sizeof line, f) && !strcmp(line, "from the shell\n"));
    CHECK(WEXITSTATUS(pclose(f)) == 3);
  }
  return NULL;
}
int main(int argc, char** argv) {
  if (argc > 1) return atoi(argv[1]);
  static char path[512];
  CHECK(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
  self = path;
  (void)argv;
  pthread_t t[3] = {start_thread(spawn, NULL), start_thread(fork_virtually, NULL),
                    start_thread(shell, NULL)};
  sleep_ms(50);
  ready_and_wait();
  for (int i = 0; i < 3; ++i) CHECK(pthread_join(t[i], NULL) == 0);
  return survived();
}
