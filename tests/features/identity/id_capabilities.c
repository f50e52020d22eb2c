// Capabilities: what was dropped stays dropped, per thread; what was there is there.
#include <linux/capability.h>
#include <sys/prctl.h>
#include "feature.h"
static struct __user_cap_data_struct before[2], after[2], own[2];
static volatile int set, go;
static void get(struct __user_cap_data_struct* d) {
  struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
  CHECK(syscall(SYS_capget, &h, d) == 0);
}
static void* body(void* a) {
  struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
  get(own);
  own[0].effective &= ~(1u << CAP_NET_ADMIN), own[0].permitted &= ~(1u << CAP_NET_RAW), own[0].effective &= ~(1u << CAP_NET_RAW);
  CHECK(syscall(SYS_capset, &h, own) == 0);
  set = 1;
  while (!go) sleep_ms(2);
  struct __user_cap_data_struct now[2];
  get(now);
  CHECK(memcmp(now, own, sizeof(now)) == 0);
  return a;
}
// Inheritable and ambient ones, where there are any to pass on.
static void pass_on(int cap) {
  struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct d[2];
  get(d);
  if (!(d[0].permitted >> cap & 1)) return;
  d[0].inheritable |= 1u << cap;
  CHECK(syscall(SYS_capset, &h, d) == 0);
  CHECK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) == 0);
}
int main(void) {
  pass_on(CAP_CHOWN);
  int ambient = prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_CHOWN, 0, 0);
  prctl(PR_CAPBSET_DROP, CAP_SYS_BOOT, 0, 0, 0);
  int bound = prctl(PR_CAPBSET_READ, CAP_SYS_BOOT, 0, 0, 0), chown = prctl(PR_CAPBSET_READ, CAP_CHOWN, 0, 0, 0);
  get(before);
  pthread_t t = start_thread(body, NULL);
  while (!set) sleep_ms(1);
  ready_and_wait();
  get(after);
  CHECK(memcmp(before, after, sizeof(before)) == 0);
  CHECK(prctl(PR_CAPBSET_READ, CAP_SYS_BOOT, 0, 0, 0) == bound && prctl(PR_CAPBSET_READ, CAP_CHOWN, 0, 0, 0) == chown);
  CHECK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_CHOWN, 0, 0) == ambient);
  go = 1;
  pthread_join(t, NULL);
  return survived();
}
