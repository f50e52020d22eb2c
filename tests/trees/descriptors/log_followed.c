// A process follows a log that another one of the job writes to all the time: what was written
// after the snapshot is taken back, and the reader goes on where it was.
#include "tree.h"
static const char name[] = "log";
static void follow(void) {
  const int log = open(name, O_RDONLY);
  CHECK(log >= 0);
  for (int expected = 0; expected >= 0;) {
    int line;
    const ssize_t n = read(log, &line, sizeof line);
    if (n == 0) {
      sleep_ms(1);
      continue;
    }
    CHECK(n == sizeof line && (line == expected || line == -1));
    expected = line < 0 ? -1 : expected + 1;
  }
  _exit(50);
}
int main(void) {
  const int log = open(name, O_WRONLY | O_CREAT | O_APPEND, 0600);
  CHECK(log >= 0);
  const pid_t reader = fork();
  if (reader == 0) {
    close(log);
    follow();
  }
  for (int line = 0; access("go_on", F_OK) != 0; ++line) {
    CHECK(write(log, &line, sizeof line) == sizeof line);
    if (line == 10) CHECK(write(1, "ready\n", 6) == 6);
    sleep_ms(1);
  }
  const int last = -1;
  CHECK(write(log, &last, sizeof last) == sizeof last);
  CHECK(wait_status(reader) == 50);
  return survived();
}
