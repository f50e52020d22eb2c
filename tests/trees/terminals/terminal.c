// An interactive shell with job control in a pseudo terminal of its parent's: half a typed line, a
// job in the background, the one in the foreground that gets the interrupt, the window's size.
#include <pty.h>
#include "tree.h"
static int master;
static void type(const char* text) {
  CHECK(write(master, text, strlen(text)) == (ssize_t)strlen(text));
}
static void expect(const char* wanted) {
  char seen[4096] = "";
  for (size_t n = 0; !strstr(seen, wanted);) {
    ssize_t got = n < sizeof(seen) - 1 ? read(master, seen + n, sizeof(seen) - 1 - n) : 0;
    if (got <= 0) dprintf(1, "wanted %s, saw %s\n", wanted, seen);
    CHECK(got > 0);
    n += (size_t)got;
  }
}
int main(void) {
  struct winsize size = {.ws_row = 33, .ws_col = 99};
  pid_t shell = forkpty(&master, NULL, NULL, &size);
  if (shell == 0) {
    setenv("PS1", "$ ", 1);
    execlp("bash", "bash", "--norc", "-i", NULL);
    _exit(1);
  }
  alarm(50);  // rather than wait for ever for what does not come
  type("stty -echo; echo u''p\n");
  expect("up");
  type("sleep 77 & echo st''arted; cat\n");
  expect("started");  // what is typed from now on is cat's
  type("some\n");
  expect("some");
  type("par");
  sleep_ms(50);
  ready_and_wait();
  type("tial\n");
  expect("partial");
  type("\003");
  expect("$ ");
  type("jobs\n");
  expect("sleep 77");
  type("stty size\n");
  expect("33 99");
  type("kill %1; wait; exit 4\n");
  int status;
  for (CHECK(fcntl(master, F_SETFL, O_NONBLOCK) == 0); waitpid(shell, &status, WNOHANG) == 0;
       sleep_ms(5)) {
    char rest[256];
    if (read(master, rest, sizeof(rest)) < 0) continue;
  }
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 4);
  return survived();
}
