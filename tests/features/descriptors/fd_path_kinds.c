// Descriptors (O_PATH) that only name what they lead to: a listening socket, a named pipe, a device, a file, a folder. The
// program opens them, or connects to them, through these.
#include <sys/socket.h>
#include <sys/un.h>
#include "feature.h"

static int place(const char* name, mode_t kind) {
  const int fd = open(name, O_PATH);
  struct stat st;
  CHECK(fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == kind);
  return fd;
}

static const char* by_number(int fd) {
  static char name[40];
  snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
  return name;
}

static void connects(int fd, int listener) {
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  strcpy(name.sun_path, by_number(fd));
  const int client = socket(AF_UNIX, SOCK_STREAM, 0);
  CHECK(client >= 0 && connect(client, (const void*)&name, sizeof(name)) == 0);
  const int server = accept(listener, NULL, NULL);
  char byte = 0;
  CHECK(server >= 0 && write(client, "x", 1) == 1 && read(server, &byte, 1) == 1 && byte == 'x');
  CHECK(close(client) == 0 && close(server) == 0);
}

int main(void) {
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  const struct sockaddr_un name = {AF_UNIX, "socket"};
  CHECK(listener >= 0 && bind(listener, (const void*)&name, sizeof(name)) == 0 && listen(listener, 4) == 0);
  CHECK(mkfifo("pipe", 0600) == 0 && mkdir("folder", 0700) == 0);
  const int made = open("file", O_WRONLY | O_CREAT, 0600);
  CHECK(made >= 0 && write(made, "text", 4) == 4 && close(made) == 0);
  const int to_socket = place("socket", S_IFSOCK), to_pipe = place("pipe", S_IFIFO), to_device = place("/dev/null", S_IFCHR);
  const int to_file = place("file", S_IFREG), to_folder = place("folder", S_IFDIR);
  connects(to_socket, listener);
  ready_and_wait();
  connects(to_socket, listener);
  char text[8];
  const int pipe = open(by_number(to_pipe), O_RDWR);
  CHECK(pipe >= 0 && write(pipe, "abc", 3) == 3 && read(pipe, text, 8) == 3);
  const int device = open(by_number(to_device), O_RDWR);
  CHECK(device >= 0 && read(device, text, 1) == 0);
  const int file = open(by_number(to_file), O_RDONLY);
  CHECK(file >= 0 && read(file, text, 8) == 4 && memcmp(text, "text", 4) == 0);
  CHECK(mkdirat(to_folder, "inner", 0700) == 0 && access("folder/inner", F_OK) == 0);
  const int all[] = {to_socket, to_pipe, to_device, to_file, to_folder};
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i) CHECK((fcntl(all[i], F_GETFL) & O_PATH) != 0);
  return survived();
}
