// Converts the images that a program passes to cuModuleLoadData to PTX text.
#pragma once

#include "driver/abi/cuda_abi.h"
#include "driver/base/base.h"

namespace simgpu {

// PTX text of our own, NUL terminated.
class Image : public RefCounted {
 public:
  ~Image() override;
  char* text = nullptr;
  size_t length = 0;
};

// PTX text, a fat binary or its wrapper. CUDA_ERROR_NO_BINARY_FOR_GPU when there is only machine
// code in it.
CUresult read_image(const void* data, int sm, Ref<Image>* out, char* log, size_t log_bytes);
CUresult read_image_file(const char* path, int sm, Ref<Image>* out, char* log, size_t log_bytes);

}  // namespace simgpu
