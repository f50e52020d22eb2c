// An interactive shell in a pseudo terminal with a job that Ctrl-Z has stopped, one that runs in
// the background, and one that stopped itself because it wanted to read: fg, bg and kill find them.
#include <pty.h>
#include "tree.h"
static int master;
static void type(const char* text) {
  CHECK(write(master, text, strlen(text)) == (ssize_t)strlen(text));
}
static char seen[4096];
static const char* volatile wanted;
static void too_late(int sig) {
  (void)sig;
  dprintf(1, "wanted %s for too long, saw %s\n", wanted, seen);
  _exit(1);
}
static void expect(const char* text) {
  wanted = text;
  memset(seen, 0, sizeof(seen));
  for (size_t n = 0; !strstr(seen, wanted);) {
    ssize_t got = n < sizeof(seen) - 1 ? read(master, seen + n, sizeof(seen) - 1 - n) : 0;
    if (got <= 0) dprintf(1, "wanted %s, saw %s\n", wanted, seen);
    CHECK(got > 0);
    n += (size_t)got;
  }
}
// What is typed from here on is for the shell's job, which continues then.
static void await_job(pid_t shell) {
  wanted = "a job in the foreground";
  while (tcgetpgrp(master) == shell) sleep_ms(5);
  sleep_ms(100);
}
int main(void) {
  pid_t shell = forkpty(&master, NULL, NULL, NULL);
  if (shell == 0) {
    setenv("PS1", "$ ", 1);
    execlp("bash", "bash", "--norc", "-i", NULL);
    _exit(1);
  }
  struct sigaction late = {.sa_handler = too_late};
  CHECK(sigaction(SIGALRM, &late, NULL) == 0);
  alarm(40);  // rather than wait for ever for what does not come
  type("stty -echo; echo u''p\n");
  expect("up");
  type("sed -u s/^/seen-/\n");
  type("first\n");
  expect("seen-first");
  type("\032");
  expect("Stopped");
  type("sleep 77 & echo st''arted\n");
  expect("started");
  type("cat & until [ $(jobs -s | wc -l) = 2 ]; do sleep 0.1; done; echo th''ree\n");
  expect("three");
  ready_and_wait();
  // They stop again a moment after a snapshot, and the shell is told of both.
  type("until [ $(jobs -s | wc -l) = 2 ]; do sleep 0.1; done; echo li''sted\n");
  expect("listed");
  type("fg %1\n");
  expect("sed -u");
  await_job(shell);
  type("second\n");
  expect("seen-second");
  type("\003");
  expect("$ ");
  type("kill %2; wait %2; echo ki''lled $?\n");
  expect("killed 143");
  type("fg %3\n");
  expect("cat");
  await_job(shell);
  type("third\n");
  expect("third");
  type("\004");
  expect("$ ");
  type("exit 4\n");
  int status;
  wanted = "the shell's end";
  for (CHECK(fcntl(master, F_SETFL, O_NONBLOCK) == 0); waitpid(shell, &status, WNOHANG) == 0;
       sleep_ms(5)) {
    char rest[256];
    if (read(master, rest, sizeof(rest)) < 0) continue;
  }
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 4);
  return survived();
}
