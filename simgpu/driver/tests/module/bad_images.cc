// Bad PTX is refused with a log that names the line; machine code alone is refused as such.
#include "kernels.h"

int main() {
  start();
  CUmodule m;
  char error[1024] = "", info[64] = "x";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {error, reinterpret_cast<void*>(sizeof error), info,
                    reinterpret_cast<void*>(sizeof info)};
  const char* bad =
      PTX_HEAD ".visible .entry k() {\n .reg .b32 %r<2>;\n frobnicate.u32 %r1, 1;\n ret;\n}\n";
  EXPECT(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx(&m, bad, 4, options, values));
  fprintf(stderr, "log: %s\n", error);
  CHECK(strstr(error, "frobnicate") && strstr(error, "6"));
  CHECK(reinterpret_cast<size_t>(values[1]) == strlen(error) && info[0] == 0);
  EXPECT(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&m, "this is no program"));
  EXPECT(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&m,
                                                        "\x7f"
                                                        "ELF and so on"));
  EXPECT(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&m, "/nonexistent/file.ptx"));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(&m, nullptr));
  CUlibrary library;
  EXPECT(CUDA_ERROR_INVALID_PTX,
         cuLibraryLoadData(&library, bad, nullptr, nullptr, 0, nullptr, nullptr, 0));
  return ok();
}
