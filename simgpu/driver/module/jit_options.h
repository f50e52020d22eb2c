#pragma once

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "driver/abi/cuda_abi.h"
#include "driver/base/base.h"

namespace simgpu {

// The outputs of a compilation that a program can ask for by options.
class JitOptions {
 public:
  JitOptions(unsigned count, CUjit_option* options, void** values)
      : count_(count), options_(options), values_(values) {
    for (unsigned i = 0; i < count_ && options_ && values_; ++i) {
      auto number = reinterpret_cast<uintptr_t>(values_[i]);
      switch (static_cast<int>(options_[i])) {
        case CU_JIT_ERROR_LOG_BUFFER:
          error_ = static_cast<char*>(values_[i]);
          break;
        case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
          error_bytes_ = static_cast<unsigned>(number);
          break;
        case CU_JIT_INFO_LOG_BUFFER:
          info_ = static_cast<char*>(values_[i]);
          break;
        case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
          info_bytes_ = static_cast<unsigned>(number);
          break;
        default:
          break;  // tuning
      }
    }
  }
  void finish(CUresult r, const char* log) {
    size_t told = 0;
    if (error_ && error_bytes_ != 0) {
      snprintf(error_, error_bytes_, "%s", r != CUDA_SUCCESS ? log : "");
      told = strlen(error_);
    }
    if (info_ && info_bytes_ != 0) info_[0] = 0;
    for (unsigned i = 0; i < count_ && options_ && values_; ++i) {
      if (options_[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
        values_[i] = reinterpret_cast<void*>(told);
      if (options_[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) values_[i] = nullptr;
    }
    if (r != CUDA_SUCCESS && told == 0 && log[0] != 0) say("%s", log);
  }

 private:
  unsigned count_;
  CUjit_option* options_;
  void** values_;
  char *error_ = nullptr, *info_ = nullptr;
  unsigned error_bytes_ = 0, info_bytes_ = 0;
};

}  // namespace simgpu
