#include "snapshot/worker.h"

#include <pthread.h>

namespace gpuckpt {
namespace {
struct Work {
  void (*run)(void*);
  void* argument;
};
void* start(void* w) {
  static_cast<Work*>(w)->run(static_cast<Work*>(w)->argument);
  return nullptr;
}
}  // namespace

bool run_on_pthread(void (*work)(void*), void* argument) {
  Work w{work, argument};
  pthread_t thread;
  if (pthread_create(&thread, nullptr, start, &w) != 0) return false;
  pthread_join(thread, nullptr);
  return true;
}

}  // namespace gpuckpt
