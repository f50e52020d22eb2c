// The image of experiment 6's second half: two kernels, each with variables of its own.
// nvcc -cubin; sizes tell which was placed by the distance to the next.
extern "C" {
__device__ unsigned first_words[0x400];    // 4 KiB
__device__ unsigned second_words[0x1000];  // 16 KiB
__constant__ unsigned fixed[16];
__global__ void first(unsigned* out) { *out = first_words[threadIdx.x]++ + fixed[0]; }
__global__ void second(unsigned* out) { *out = second_words[threadIdx.x]++; }
}
