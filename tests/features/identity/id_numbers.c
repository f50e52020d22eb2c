// Process and thread ids, parent's existence, session, group, user and what /proc says of them.
#include "feature.h"
static pid_t tid;
static volatile int go;
static void* body(void* a) {
  tid = (pid_t)syscall(SYS_gettid);
  while (!go) sleep_ms(2);
  CHECK(tid == (pid_t)syscall(SYS_gettid));
  return a;
}
int main(void) {
  pid_t pid = getpid(), sid = getsid(0), group = getpgid(0);
  uid_t uid = getuid(), euid = geteuid();
  gid_t gid = getgid(), groups[64];
  int n = getgroups(64, groups);
  pthread_t t = start_thread(body, NULL);
  while (!tid) sleep_ms(1);
  ready_and_wait();
  go = 1;
  pthread_join(t, NULL);
  CHECK(pid == getpid() && uid == getuid() && euid == geteuid() && gid == getgid());
  gid_t now[64];
  CHECK(getgroups(64, now) == n && memcmp(groups, now, sizeof(gid_t) * (size_t)n) == 0);
  char text[4096] = "", path[64], want[64];
  sprintf(path, "/proc/%d/status", pid);
  int fd = open(path, O_RDONLY);
  CHECK(fd >= 0 && read(fd, text, 4095) > 0);
  sprintf(want, "Uid:\t%d\t%d", uid, euid);
  CHECK(strstr(text, want));
  sprintf(path, "/proc/self/task/%d", pid);
  CHECK(access(path, F_OK) == 0);
  CHECK(kill(pid, 0) == 0 && getppid() >= 0);
  CHECK((sid == pid) == (getsid(0) == getpid()) && (group == pid) == (getpgid(0) == getpid()));
  char exe[4096] = "";
  CHECK(readlink("/proc/self/exe", exe, 4095) > 0 && strstr(exe, "id_numbers"));
  return survived();
}
