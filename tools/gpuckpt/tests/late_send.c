// Preloaded into the command line: its first message on a socket is sent after two seconds, as if
// the machine had been busy.
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

ssize_t send(int socket, const void* data, size_t bytes, int flags) {
  static int late = 1;
  if (late) sleep(2);
  late = 0;
  return sendto(socket, data, bytes, flags, NULL, 0);
}
