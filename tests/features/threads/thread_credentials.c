// Threads with user ids, groups and securebits of their own, as raw system calls give them. Only
// root may; others have a thread that may not gain privileges.
#include <grp.h>
#include <stdatomic.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include "feature.h"
static atomic_int set, go;
static void* as_another(void* a) {
  const gid_t groups[] = {5, 17, 29};
  CHECK(syscall(SYS_setgroups, 3, groups) == 0);
  CHECK(prctl(PR_SET_SECUREBITS, 1 << 4 /* KEEP_CAPS */, 0, 0, 0) == 0);
  CHECK(syscall(SYS_setresgid, 12, 13, 14) == 0 && syscall(SYS_setresuid, 21, 22, 23) == 0);
  ++set;
  while (!go) sleep_ms(2);
  uid_t u[3];
  gid_t g[3], now[8];
  CHECK(getresuid(&u[0], &u[1], &u[2]) == 0 && u[0] == 21 && u[1] == 22 && u[2] == 23);
  CHECK(getresgid(&g[0], &g[1], &g[2]) == 0 && g[0] == 12 && g[1] == 13 && g[2] == 14);
  CHECK(setfsuid((uid_t)-1) == 22 && setfsgid((gid_t)-1) == 13);
  CHECK(getgroups(8, now) == 3 && memcmp(now, groups, sizeof(groups)) == 0);
  CHECK(prctl(PR_GET_SECUREBITS, 0, 0, 0, 0) == 1 << 4);
  return a;
}
static void* unprivileged(void* a) {
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  ++set;
  while (!go) sleep_ms(2);
  CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
  return a;
}
int main(void) {
  const int before = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), threads = getuid() == 0 ? 2 : 1;
  pthread_t t[2] = {start_thread(unprivileged, NULL)};
  if (threads == 2) t[1] = start_thread(as_another, NULL);
  while (set < threads) sleep_ms(1);
  const uid_t user = geteuid();
  gid_t groups[64], now[64];
  const int n = getgroups(64, groups);
  ready_and_wait();
  go = 1;
  for (int i = 0; i < threads; ++i) CHECK(pthread_join(t[i], NULL) == 0);
  CHECK(getuid() == user && geteuid() == user && setfsuid((uid_t)-1) == (int)user);
  CHECK(getgroups(64, now) == n && memcmp(now, groups, (size_t)n * sizeof(gid_t)) == 0);
  CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == before);
  return survived();
}
