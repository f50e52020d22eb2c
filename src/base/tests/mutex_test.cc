// One mutex for everything inside the process: it excludes, it sleeps, and a forked child finds it
// free.
#include "base/mutex.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <initializer_list>

using namespace gpuckpt;

namespace {

int failures = 0;
void expect(bool right, const char* what) {
  if (right) return;
  std::fprintf(stderr, "FAILED: %s\n", what);
  failures++;
}

Mutex counted;
long counter = 0;
void* count(void*) {
  for (int i = 0; i < 200000; ++i) {
    MutexLock lock(counted);
    counter = counter + 1;
  }
  return nullptr;
}

Mutex handed;
int order = 0;
void* take_handed(void*) {
  MutexLock lock(handed);
  order = order * 10 + 2;
  return nullptr;
}

}  // namespace

int main() {
  pthread_t threads[4];
  for (pthread_t& t : threads) pthread_create(&t, nullptr, count, nullptr);
  for (pthread_t& t : threads) pthread_join(t, nullptr);
  expect(counter == 800000, "two threads were inside at once");
  expect(!counted.held(), "it is held although no thread holds it");

  handed.lock();
  pthread_create(&threads[0], nullptr, take_handed, nullptr);
  usleep(50000);  // long enough for the other thread to sleep on it
  order = 1;
  handed.unlock();
  pthread_join(threads[0], nullptr);
  expect(order == 12, "a waiter was not woken, or did not wait");

  for (bool waited_for : {false, true}) {
    handed.lock();
    if (waited_for) {
      pthread_create(&threads[0], nullptr, take_handed, nullptr);
      usleep(50000);
    }
    pid_t child = fork();
    if (child == 0) {
      alarm(5);
      expect(handed.held(), "the child cannot see that it was held");
      mutexes_after_fork();
      handed.lock();
      expect(handed.held(), "the child does not hold it");
      handed.unlock();
      mutexes_after_fork();
      handed.lock();
      _exit(failures ? 1 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    expect(status == 0, "a forked child hung on a mutex that its parent held");
    handed.unlock();
    if (waited_for) pthread_join(threads[0], nullptr);
  }

  handed.lock();
  handed.reset();
  handed.lock();
  handed.unlock();
  return failures ? 1 : 0;
}
