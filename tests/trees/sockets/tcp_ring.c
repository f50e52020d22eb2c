// Processes in a ring of TCP connections, each writing to the next and reading from the one before at the same time, in pieces of
// all lengths: bytes are on their way everywhere whenever they are stopped. Each checks every byte.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include "tree.h"
enum { kProcesses = 4 };
static int to_next, from_previous;
static volatile int stop;
static uint8_t byte_at(uint64_t i, unsigned of) { return (uint8_t)(i * 31 + i / 253 + of * 7); }
static uint64_t written;
static unsigned self;
static void* writer(void* a) {
  static uint8_t piece[70000];
  unsigned seed = self + 1;
  do {
    const size_t n = 1 + (size_t)rand_r(&seed) % (rand_r(&seed) % 8 ? 600 : sizeof(piece));
    for (size_t i = 0; i < n; ++i) piece[i] = byte_at(written + i, self);
    for (size_t done = 0; done < n;) {
      const ssize_t k = send(to_next, piece + done, n - done, MSG_NOSIGNAL);
      CHECK(k > 0);
      done += (size_t)k;
    }
    written += n;
    if (rand_r(&seed) % 16 == 0) sleep_ms(1);
  } while (!stop);
  CHECK(shutdown(to_next, SHUT_WR) == 0);
  return a;
}
static void* wait_for_end(void* a) {
  while (access("go_on", F_OK) != 0) sleep_ms(5);
  stop = 1;
  return a;
}
static void run(unsigned number) {
  static uint8_t piece[50000];
  self = number;
  const unsigned before = (number + kProcesses - 1) % kProcesses;
  pthread_t w = start_thread(writer, NULL), e = start_thread(wait_for_end, NULL);
  unsigned seed = number + 100;
  uint64_t got = 0;
  for (;;) {
    const ssize_t n = recv(from_previous, piece, 1 + (size_t)rand_r(&seed) % sizeof(piece), 0);
    CHECK(n >= 0);
    if (n == 0) break;
    for (ssize_t i = 0; i < n; ++i) CHECK(piece[i] == byte_at(got + (uint64_t)i, before));
    got += (uint64_t)n;
    if (rand_r(&seed) % 64 == 0) sleep_ms(2);
  }
  CHECK(pthread_join(w, NULL) == 0 && pthread_join(e, NULL) == 0 && got > 0);
}
int main(void) {
  struct sockaddr_in a = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, ""};
  socklen_t n = sizeof(a);
  int listener[kProcesses];
  struct sockaddr_in at[kProcesses];
  for (int i = 0; i < kProcesses; ++i) {
    listener[i] = socket(AF_INET, SOCK_STREAM, 0);
    a.sin_port = 0;
    CHECK(bind(listener[i], (struct sockaddr*)&a, n) == 0 && listen(listener[i], 3) == 0);
    CHECK(getsockname(listener[i], (struct sockaddr*)&at[i], &n) == 0);
  }
  pid_t child[kProcesses] = {0};
  unsigned number = 0;
  for (unsigned i = 1; i < kProcesses && number == 0; ++i)
    if ((child[i] = fork()) == 0) number = i;
  const unsigned next = (number + 1) % kProcesses;
  to_next = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(connect(to_next, (struct sockaddr*)&at[next], n) == 0);
  CHECK((from_previous = accept(listener[number], NULL, NULL)) >= 0);
  for (int i = 0; i < kProcesses; ++i) close(listener[i]);
  if (number) {
    run(number);
    _exit(50);
  }
  pthread_t t = start_thread(wait_for_end, NULL);
  sleep_ms(50);
  CHECK(write(1, "ready\n", 6) == 6);
  run(0);
  CHECK(pthread_join(t, NULL) == 0);
  for (int i = 1; i < kProcesses; ++i) CHECK(wait_status(child[i]) == 50);
  return survived();
}
