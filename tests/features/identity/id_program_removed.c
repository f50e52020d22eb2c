// A program whose own file is removed while it runs goes on; /proc/self/exe leads to another file after a restore.
#include "feature.h"
int main(int count, char** arguments) {
  if (count == 1) {
    char bytes[65536];
    int from = open("/proc/self/exe", O_RDONLY), to = open("copy", O_WRONLY | O_CREAT | O_EXCL, 0700);
    CHECK(from >= 0 && to >= 0);
    for (long n; (n = read(from, bytes, sizeof(bytes))) > 0;) CHECK(write(to, bytes, (size_t)n) == n);
    close(from), close(to);
    execl("./copy", arguments[0], "copy", (char*)NULL);
    CHECK(0);
  }
  CHECK(unlink("copy") == 0);
  ready_and_wait();
  char path[4096] = "";
  CHECK(readlink("/proc/self/exe", path, sizeof(path) - 1) > 0 && path[0] == '/');
  CHECK(strcmp(arguments[1], "copy") == 0);
  return survived();
}
