// What the files of the library share: which of NVIDIA's compiler libraries a call is meant for,
// and our functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace simgpu::compilers {

// A program may have several versions of a compiler loaded (of CUDA 12 and of 13). Our functions
// exist once for each of the first kLibraries objects that were asked for one of their names, so
// that each calls the object it stands for.
constexpr int kLibraries = 4;

// The function `name` of object `library`; null: it has none.
void* real_function(int library, const char* name);

template <class Function>
Function* real(int library, const char* name) {
  return reinterpret_cast<Function*>(real_function(library, name));
}

// Our function in the place of `name` for object `library`; null: there is none for that name.
void* nvrtc_function(const char* name, int library);
void* nvjitlink_function(const char* name, int library);

// The compute capability of the simulated device, times ten.
uint32_t device_sm();

// Whether machine code for `sm` runs on the device. It does within a major version only, while PTX
// runs on every later device; a program that asks for another device's code fails here, as on a
// real one.
bool code_runs(uint32_t sm);

// N of ".target sm_N" in a PTX text; 0: there is none.
uint32_t target_of(const char* text);

// For code at `caller` that is linked with a compiler instead of loading it, and so called `ours`:
// the number of the object that has `name`; -1: there is none.
int linked_library(const char* name, void* ours, void* caller);

}  // namespace simgpu::compilers
