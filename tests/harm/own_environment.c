// A program that has functions of libc's names for its environment, as shells have, which work only
// when its main has begun: the library calls none of them before. Its children and a restore find
// the whole environment.
#include "../features/feature.h"

extern char** environ;
static char*** table;  // null until main begins

static char** entry_of(const char* name) {
  const size_t n = strlen(name);
  for (char** e = *table; *e; ++e)
    if (!strncmp(*e, name, n) && (*e)[n] == '=') return e;
  return NULL;
}

char* getenv(const char* name) {
  char** e = entry_of(name);
  return e ? strchr(*e, '=') + 1 : NULL;
}
int putenv(char* text) {
  char name[64] = "";
  sscanf(text, "%63[^=]", name);
  char** e = entry_of(name);
  if (e) *e = text;
  return e ? 0 : -1;
}
int setenv(const char* name, const char* value, int replace) {
  (void)value;
  return entry_of(name) && !replace ? 0 : -1;
}
char* getcwd(char* to, size_t room) {
  return **table && room ? to : NULL;
}

static void check_environment(void) {
  CHECK(getenv("HOME") && getenv("LD_PRELOAD") && getenv("GPUCKPT_STORE"));
  const pid_t child = fork();
  CHECK(child >= 0);
  if (!child) {
    execl("/bin/sh", "sh", "-c", "test -n \"$HOME\" && test -n \"$GPUCKPT_STORE\" && test \"$OWN\" = 2", NULL);
    _exit(9);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main() {
  table = &environ;
  static char one[] = "OWN=1", two[] = "OWN=2";
  size_t n = 0;
  while (environ[n]) ++n;
  char** larger = malloc((n + 2) * sizeof *larger);  // as a shell does
  CHECK(larger);
  memcpy(larger, environ, n * sizeof *larger);
  larger[n] = one, larger[n + 1] = NULL;
  environ = larger;
  CHECK(putenv(two) == 0);
  check_environment();
  ready_and_wait();
  check_environment();
  return survived();
}
