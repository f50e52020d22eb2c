#include "driver/module/image.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ptx/fatbin.h"

namespace simgpu {

Image::~Image() { free(text); }

namespace {

constexpr uint32_t kWrapper = 0x466243b1, kContainer = 0xba55ed50;

Ref<Image> copy(const char* text, size_t length) {
  auto i = Ref<Image>::adopt(new Image);
  i->text = static_cast<char*>(malloc(length + 1));
  if (!i->text) return {};
  memcpy(i->text, text, length);
  i->text[length] = 0;
  i->length = length;
  return i;
}

bool looks_like_ptx(const char* p) {
  // White space, comments, then ".version".
  for (;;) {
    while (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r') ++p;
    if (p[0] == '/' && p[1] == '/') {
      while (*p != 0 && *p != '\n') ++p;
    } else if (p[0] == '/' && p[1] == '*') {
      const char* end = strstr(p, "*/");
      if (!end) return false;
      p = end + 2;
    } else {
      return *p == '.';
    }
  }
}

}  // namespace

CUresult read_image(const void* data, int sm, Ref<Image>* out, char* log, size_t log_bytes) {
  if (!data) return CUDA_ERROR_INVALID_VALUE;
  uint32_t magic;
  memcpy(&magic, data, sizeof magic);
  if (magic == kWrapper || magic == kContainer) {
    char* text = nullptr;
    size_t length = 0;
    ptx::FatbinResult r =
        ptx::extract_ptx(data, static_cast<uint32_t>(sm), &text, &length, log, log_bytes);
    switch (r) {
      case ptx::FatbinResult::kOk:
        break;
      case ptx::FatbinResult::kNoPtx:
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
      default:
        return CUDA_ERROR_INVALID_IMAGE;
    }
    auto i = Ref<Image>::adopt(new Image);
    i->text = text;
    i->length = length;
    *out = std::move(i);
    return CUDA_SUCCESS;
  }
  if (memcmp(data,
             "\x7f"
             "ELF",
             4) == 0) {
    snprintf(log, log_bytes, "the image is machine code (a cubin); the simulated GPU needs PTX");
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  auto* text = static_cast<const char*>(data);
  if (!looks_like_ptx(text)) {
    snprintf(log, log_bytes, "the image is neither PTX text nor a fat binary");
    return CUDA_ERROR_INVALID_IMAGE;
  }
  *out = copy(text, strlen(text));
  return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult read_image_file(const char* path, int sm, Ref<Image>* out, char* log, size_t log_bytes) {
  if (!path) return CUDA_ERROR_INVALID_VALUE;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return CUDA_ERROR_FILE_NOT_FOUND;
  struct stat st;
  char* bytes = nullptr;
  size_t size = 0;
  if (fstat(fd, &st) == 0 && st.st_size > 0)
    bytes = static_cast<char*>(calloc(1, static_cast<size_t>(st.st_size) + 8));
  while (bytes && size < static_cast<size_t>(st.st_size)) {
    ssize_t n = read(fd, bytes + size, static_cast<size_t>(st.st_size) - size);
    if (n <= 0) break;
    size += static_cast<size_t>(n);
  }
  close(fd);
  if (!bytes || size < 4) {
    free(bytes);
    return CUDA_ERROR_INVALID_IMAGE;
  }
  CUresult r = read_image(bytes, sm, out, log, log_bytes);
  free(bytes);
  return r;
}

}  // namespace simgpu
