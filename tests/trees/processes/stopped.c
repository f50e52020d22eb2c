// Children that are stopped: one with a handler for SIGCONT, one with threads, one in the middle of
// a sleep. They stay where they are until the parent lets them go on.
#include <sys/mman.h>
#include "tree.h"
enum { kChildren = 3 };
static struct {
  long steps[kChildren];
  int continued, woken, slept;
} * s;
static void on_continue(int sig) { (void)sig, ++s->continued; }
static void on_wake(int sig) { (void)sig, ++s->woken; }
static void* step(void* which) {
  for (;;) __atomic_add_fetch((long*)which, 1, __ATOMIC_SEQ_CST);
  return NULL;
}
static void be_child(int i) {
  if (i == 0) {
    struct sigaction a = {.sa_handler = on_continue, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGCONT, &a, NULL) == 0);
    while (access("end", F_OK) != 0) ++s->steps[0], sleep_ms(1);
    _exit(60);
  }
  if (i == 1) {
    for (int t = 0; t < 3; ++t) start_thread(step, &s->steps[1]);
    while (access("end", F_OK) != 0) ++s->steps[1];
    _exit(61);
  }
  struct timespec long_time = {300, 0};  // a handler ends it
  struct sigaction a = {.sa_handler = on_wake};
  CHECK(sigaction(SIGUSR2, &a, NULL) == 0);
  ++s->steps[2];
  const int result = nanosleep(&long_time, NULL);
  s->slept = result == -1 && errno == EINTR ? 1 : 2;
  ++s->steps[2];
  _exit(62);
}
static void look(long* to) {
  for (int i = 0; i < kChildren; ++i) to[i] = __atomic_load_n(&s->steps[i], __ATOMIC_SEQ_CST);
}
static char state(pid_t pid) {
  char path[64], c = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE* f = fopen(path, "r");
  CHECK(f && fscanf(f, "%*d (%*[^)]) %c", &c) == 1);
  fclose(f);
  return c;
}
int main(void) {
  s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(s != MAP_FAILED);
  pid_t child[kChildren];
  long before[kChildren], after[kChildren];
  int status;
  for (int i = 0; i < kChildren; ++i)
    if ((child[i] = fork()) == 0) be_child(i);
  for (look(before); !before[0] || !before[1] || !before[2]; look(before)) sleep_ms(1);
  sleep_ms(20);
  for (int i = 0; i < kChildren; ++i) {
    CHECK(kill(child[i], SIGSTOP) == 0);
    CHECK(waitpid(child[i], &status, WUNTRACED) == child[i] && WIFSTOPPED(status));
  }
  look(before);
  ready_and_wait();
  for (int t = 0; t < 1000; ++t) {  // a restored one stops when it has come so far
    int all = 1;
    for (int i = 0; i < kChildren; ++i) all &= state(child[i]) == 'T';
    if (all) break;
    sleep_ms(5);
  }
  for (int i = 0; i < kChildren; ++i) CHECK(state(child[i]) == 'T');
  look(after);
  CHECK(memcmp(before, after, sizeof before) == 0 && s->continued == 0 && s->slept == 0);
  for (int i = 0; i < kChildren; ++i) CHECK(kill(child[i], SIGCONT) == 0);
  for (look(after); after[0] == before[0] || after[1] == before[1]; look(after)) sleep_ms(1);
  sleep_ms(20);
  CHECK(s->continued == 1 && s->slept == 0);
  // Where it was stopped before it came to its sleep, the first one finds it there too early.
  for (; !s->slept; sleep_ms(20)) CHECK(kill(child[2], SIGUSR2) == 0);
  CHECK(close(open("end", O_WRONLY | O_CREAT, 0600)) == 0);
  for (int i = 0; i < kChildren; ++i) CHECK(wait_status(child[i]) == 60 + i);
  CHECK(s->continued == 1 && s->woken > 0 && s->slept == 1);
  return survived();
}
