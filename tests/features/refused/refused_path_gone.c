// A socket's name that is held open itself (O_PATH) and has been removed: nothing that is made again leads to that socket.
#include <sys/socket.h>
#include <sys/un.h>
#include "feature.h"
int main(void) {
  const int bound = socket(AF_UNIX, SOCK_STREAM, 0);
  const struct sockaddr_un name = {AF_UNIX, "name"};
  CHECK(bound >= 0 && bind(bound, (const void*)&name, sizeof(name)) == 0 && listen(bound, 1) == 0);
  const int fd = open("name", O_PATH);
  CHECK(fd >= 0 && unlink("name") == 0);
  ready_and_wait();
  struct stat st;
  CHECK(fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode));
  return survived();
}
