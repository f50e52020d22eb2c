// The other half of kernel_relocatable.cu.
extern __device__ int from_main(int);
__device__ int shared_value = 7;
__constant__ int table[4] = {0, 11, 22, 33};
static __device__ __noinline__ int hidden(int x) { return x * 2; }
__device__ __noinline__ int twice(int x) { return hidden(from_main(x)) + hidden(x); }
