// printf in a kernel reaches standard output by the next synchronisation, in order for one thread.
#include <unistd.h>

#include "conformance.h"

__global__ void speak(const char* word) {
  if (threadIdx.x == 3) {
    printf("%s %d %u %lld %5.2f|%c|%%|%x\n", word, -5, 7u, 1ll << 40, 2.125, 'z', 255);
    printf("again\n");
  }
}

int main() {
  FILE* file = tmpfile();
  EXPECT(file != nullptr);
  fflush(stdout);
  int saved = dup(1);
  dup2(fileno(file), 1);
  char* word;
  CHECK(cudaMalloc(&word, 8));
  CHECK(cudaMemcpy(word, "hello", 6, cudaMemcpyHostToDevice));
  speak<<<1, 32>>>(word);
  CHECK(cudaDeviceSynchronize());
  fflush(stdout);
  dup2(saved, 1);
  rewind(file);
  char text[256] = {};
  EXPECT(fread(text, 1, sizeof(text) - 1, file) > 0);
  if (strcmp(text, "hello -5 7 1099511627776  2.12|z|%|ff\nagain\n") != 0) {
    fprintf(stderr, "printed: %s\n", text);
    return 1;
  }
  return passed();
}
