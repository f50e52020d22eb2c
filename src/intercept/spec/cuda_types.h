// cuda.h with every version of every entry point declared and without its renaming macros, so that
// `cuMemAlloc` means the symbol of that name and `cuMemAlloc_v2` the other one.
//
// Owner: none, declarations. Threads: any. Errors: at compile time, where cuda.h was included
// before.
#pragma once

#if defined(__cuda_cuda_h__) && !defined(__CUDA_API_VERSION_INTERNAL)
#error \
    "include intercept/spec/cuda_types.h instead of cuda.h (or define __CUDA_API_VERSION_INTERNAL before it)"
#endif
#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#include <cuda.h>
#include <cudaProfiler.h>
