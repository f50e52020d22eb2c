// Prints, for seeds_differ.sh, values that must differ in the next process.
#include "check.h"

int main() {
  CUcontext c = start();
  CUstream s;
  CUdeviceptr d;
  unsigned long long id;
  OK(cuStreamCreate(&s, 0));
  OK(cuMemAlloc(&d, 4 << 20));
  OK(cuStreamGetId(s, &id));
  printf("%p %p %llx %llu\n", static_cast<void*>(c), static_cast<void*>(s), d, id);
  return 0;
}
