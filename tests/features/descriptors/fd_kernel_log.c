// The kernel's log: how far it was read is not told, so a restored program reads it from its first
// message again, as the snapshot says. One that is only written to is told of by nothing.
#include "feature.h"
static long number_of_next(int log) {
  char message[8192];
  const ssize_t n = read(log, message, sizeof(message) - 1);
  if (n <= 0) absent("the kernel's log is empty");
  message[n] = 0;
  CHECK(strchr(message, ','));
  return atol(strchr(message, ',') + 1);
}
int main(void) {
  const int log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK), sink = open("/dev/kmsg", O_WRONLY);
  if (log < 0 || sink < 0) absent("/dev/kmsg");
  const long first = number_of_next(log), second = number_of_next(log);
  ready_and_wait();
  const long next = number_of_next(log);
  // (The first ones may have been given up for new ones meanwhile.)
  CHECK(access("was_restored", F_OK) == 0 ? next >= first : next > second);
  CHECK((fcntl(sink, F_GETFL) & O_ACCMODE) == O_WRONLY);
  return survived();
}
