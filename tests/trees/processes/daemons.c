// Processes whose parents have ended: a daemon by double fork that stays in its session, one that
// leads a session of its own and has a child, one in the session of the program, one that runs
// another program. All are in touch with the program.
#include <sys/mman.h>
#include "tree.h"
struct Seen {
  pid_t pid, group, session;
  int go, rounds, ended;
};
static struct Seen* seen;
// Counts until it is told to end, then looks whether it is where it was. parent 0: the process that takes
// orphans on.
static void live(struct Seen* me, pid_t parent) {
  me->group = getpgid(0), me->session = getsid(0);
  __atomic_store_n(&me->pid, getpid(), __ATOMIC_SEQ_CST);
  while (!__atomic_load_n(&me->go, __ATOMIC_SEQ_CST)) {
    __atomic_add_fetch(&me->rounds, 1, __ATOMIC_SEQ_CST);
    sleep_ms(2);
  }
  const int right = me->pid == getpid() && me->group == getpgid(0) && me->session == getsid(0) &&
                    (!parent || getppid() == parent);
  __atomic_store_n(&me->ended, right ? 1 : 2, __ATOMIC_SEQ_CST);
}
static void daemonise(int i, const char* self) {
  pid_t middle = fork();
  if (middle == 0) {
    pid_t own = getpid();
    if (i == 0 || i == 4) setsid();
    if (fork()) _exit(0);
    while (getppid() == own) sleep_ms(1);
    if (i == 1) {
      setsid();
      pid_t parent = getpid();
      if (fork() == 0) live(&seen[5], parent), _exit(0);
    }
    if (i == 2) setpgid(0, 0);
    if (i == 3 || i == 4) {
      char number[16];
      snprintf(number, sizeof number, "%d", i);
      execl(self, self, number, (char*)NULL);
      _exit(9);
    }
    live(&seen[i], 0);
    if (i == 1) _exit(wait(NULL) < 0);
    _exit(0);
  }
  CHECK(wait_status(middle) == 0);
}
int main(int argc, char** argv) {
  int file = open("shared", O_RDWR | O_CREAT, 0600);
  CHECK(file >= 0 && ftruncate(file, 4096) == 0);
  seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  CHECK(seen != MAP_FAILED);
  if (argc > 1) return live(&seen[atoi(argv[1])], 0), 0;
  char self[512];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  CHECK(n > 0);
  self[n] = 0;
  for (int i = 0; i < 5; ++i) daemonise(i, self);
  for (int i = 0; i < 6; ++i)
    while (!__atomic_load_n(&seen[i].pid, __ATOMIC_SEQ_CST)) sleep_ms(2);
  ready_and_wait();
  int rounds[6];
  for (int i = 0; i < 6; ++i) rounds[i] = __atomic_load_n(&seen[i].rounds, __ATOMIC_SEQ_CST);
  for (int i = 0; i < 6; ++i)
    for (int t = 0; __atomic_load_n(&seen[i].rounds, __ATOMIC_SEQ_CST) == rounds[i]; ++t) {
      if (t > 2000) dprintf(1, "process %d (%d) does not run\n", i, seen[i].pid);
      CHECK(t <= 2000);
      sleep_ms(5);
    }
  CHECK(getsid(seen[2].pid) == getsid(0) && getpgid(seen[2].pid) == seen[2].pid);
  for (int i = 0; i < 6; ++i) __atomic_store_n(&seen[i].go, 1, __ATOMIC_SEQ_CST);
  for (int i = 0; i < 6; ++i)
    for (int t = 0; !__atomic_load_n(&seen[i].ended, __ATOMIC_SEQ_CST); ++t) {
      CHECK(t <= 2000);
      sleep_ms(5);
    }
  for (int i = 0; i < 6; ++i)
    if (seen[i].ended != 1) dprintf(1, "process %d is not where it was\n", i);
  for (int i = 0; i < 6; ++i) CHECK(seen[i].ended == 1);
  return survived();
}
