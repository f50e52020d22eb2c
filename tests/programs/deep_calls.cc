// Two threads, each asleep at the bottom of calls with known names: what inspect has to show.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

namespace {

__attribute__((noipa)) void sleep_for_ever(int depth) {
  for (;;) {
    usleep(20000 + depth);
  }
}

__attribute__((noipa)) void descend(int depth) {
  if (depth == 0)
    sleep_for_ever(depth);
  else
    descend(depth - 1);
  asm volatile("");  // no tail call: every level keeps its frame
}

void* work_in_thread(void*) {
  descend(2);
  return nullptr;
}

}  // namespace

int main() {
  pthread_t thread;
  if (pthread_create(&thread, nullptr, work_in_thread, nullptr) != 0) return 1;
  pthread_setname_np(thread, "diver");
  puts("ready");
  fflush(stdout);
  descend(3);
}
