// The process that bench/host/connections.py snapshots: it is connected to itself by TCP many
// times, with bytes in both directions that no process reads, and a thread spins on the clock and
// remembers the longest time it could not.
//
//   connections COUNT BYTES      BYTES in each direction of each; -1: two sockets that are not
//                                connected instead. Then commands on stdin, one answer each on
//                                stdout:
//     reset   forget the longest gap
//     gap     the longest one since, us
//
// Plain C++ and libc: it knows nothing of gpuckpt.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace {

std::atomic<uint64_t> longest{0};

uint64_t now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000 + static_cast<uint64_t>(t.tv_nsec) / 1000;
}

void spin() {
  for (uint64_t last = now_us();;) {
    const uint64_t now = now_us();
    if (now - last > longest) longest = now - last;
    last = now;
  }
}

void check(bool good, const char* what) {
  if (good) return;
  perror(what);
  exit(1);
}

void connect_to_itself(int count, long unread) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  auto* address = reinterpret_cast<sockaddr*>(&at);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  check(bind(listener, address, size) == 0 && listen(listener, 64) == 0, "listen");
  getsockname(listener, address, &size);
  const size_t bytes = unread > 0 ? static_cast<size_t>(unread) : 0;
  const std::vector<char> piece(bytes, 'x');
  for (int i = 0; i < count; ++i) {
    if (unread < 0) {
      for (int k = 0; k < 2; ++k) check(socket(AF_INET, SOCK_STREAM, 0) >= 0, "socket");
      continue;
    }
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    check(connect(client, address, size) == 0, "connect");
    const int server = accept(listener, nullptr, nullptr);
    check(server >= 0, "accept");
    for (int fd : {client, server})
      for (size_t done = 0; done < bytes;) {
        const ssize_t n = send(fd, piece.data() + done, bytes - done, MSG_DONTWAIT);
        check(n > 0, "send");
        done += static_cast<size_t>(n);
      }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  connect_to_itself(atoi(argv[1]), atol(argv[2]));
  std::thread(spin).detach();
  puts("ready");
  fflush(stdout);
  for (char line[64]; fgets(line, sizeof(line), stdin);) {
    if (!strcmp(line, "reset\n")) longest = 0;
    printf("%lu\n", longest.load());
    fflush(stdout);
  }
  _exit(0);
}
