// How the application reaches the driver: exported symbols (generated), cuGetProcAddress, dlopen,
// and generic thunks for entry points that the spec does not describe.
//
// Owner: process-wide, lives as long as the process. Threads: any; doors_fill() runs once, before
// the first call. Errors: null where there is no such function.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuckpt {

// After loading the driver (`handle` null: there is none): fills real(), the thunks' targets and
// the map from the driver's functions to our wrappers.
void doors_fill(void* handle);

// Our function for one of the driver's: the wrapper, or a thunk named `name` when the spec does not
// describe it. `preferred`: the FunctionId that fits best when the driver has several names for one
// function, or -1.
void* door_to(void* driver_function, const char* name, int preferred);

// Generic thunks by number: exported ones first, then those made for cuGetProcAddress. Calls so
// far; name.
uint64_t thunk_calls(uint32_t thunk);
const char* thunk_name(uint32_t thunk);
// Why a snapshot is refused once it was called; null: it is not.
const char* thunk_refusal(uint32_t thunk);

// Times cuGetExportTable handed out one of the driver's private tables.
uint64_t export_tables_given();

// libc's dlopen, not ours.
using DlopenFunction = void* (*)(const char*, int);
DlopenFunction real_dlopen();

}  // namespace gpuckpt
