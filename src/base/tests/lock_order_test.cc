// Fear: two locks are taken in one order here and in the other there, and some day two threads wait
// for each other for good.
#include <pthread.h>

#include <cstdio>

#include "base/mutex.h"

using namespace gpuckpt;

namespace {

int complaints, wrong;
uint8_t last_held, last_taken;

void complain(uint8_t held, uint8_t taken) {
  ++complaints;
  last_held = held, last_taken = taken;
}

void expect(int wanted, const char* what) {
  if (complaints != wanted) {
    printf("%s: %d complaints, not %d\n", what, complaints, wanted);
    ++wrong;
  }
  complaints = 0;
}

Mutex outer{uint8_t{1}}, inner{uint8_t{2}}, sibling{uint8_t{2}}, unordered;

void* take_outer(void*) {
  MutexLock guard(outer);
  return nullptr;
}

}  // namespace

int main() {
  mutex_detail::out_of_order = complain;
  for (int round = 0; round < 2; ++round) {
    {
      MutexLock one(outer);
      MutexLock two(inner);
    }
    expect(0, "in order");
    { MutexLock two(inner); }
    { MutexLock one(outer); }
    expect(0, "one after the other");
  }
  {
    MutexLock two(inner);
    MutexLock one(outer);
    if (last_held != 2 || last_taken != 1) ++wrong, printf("other ranks than those taken\n");
  }
  expect(1, "the wrong way round");
  {
    MutexLock two(inner);
    MutexLock three(sibling);
  }
  expect(1, "two of one rank");
  {
    MutexLock two(inner);
    MutexLock none(unordered);
    MutexLock three(sibling);
  }
  expect(1, "over a lock without a rank");
  {
    MutexLock two(inner);
    pthread_t other;
    pthread_create(&other, nullptr, take_outer, nullptr);
    pthread_join(other, nullptr);
  }
  expect(0, "of two threads");
  puts(wrong ? "FAILED" : "ordered");
  return wrong != 0;
}
