// A thread that no longer shares something with the others (unshare(2)).
#pragma once
#include <sched.h>
#include <stdatomic.h>
#include "../feature.h"
static atomic_int unshared_step;
static void* be_unshared(void* flags) {
  CHECK(unshare((int)(intptr_t)flags) == 0);
  for (unshared_step = 1; unshared_step < 2;) sleep_ms(2);
  return NULL;
}
static inline int wait_with_unshared_thread(int flags) {
  pthread_t t = start_thread(be_unshared, (void*)(intptr_t)flags);
  while (!unshared_step) sleep_ms(1);
  ready_and_wait();
  unshared_step = 2;
  CHECK(pthread_join(t, NULL) == 0);
  return survived();
}
