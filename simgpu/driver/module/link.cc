// cuLink*: links PTX texts to one text. The "cubin" that it returns is PTX, the machine code of
// this GPU.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/base/state.h"
#include "driver/context/context.h"
#include "driver/module/image.h"
#include "driver/module/jit_options.h"

namespace simgpu {
namespace {

class LinkState : public Object {
 public:
  static constexpr Kind kKind = Kind::kLink;
  struct Input {
    Ref<Image> image;
    char name[64];
  };
  LinkState(unsigned count, CUjit_option* options, void** values)
      : Object(kKind), options(count, options, values) {}
  ~LinkState() override { free(out); }
  JitOptions options;
  Mutex mutex;
  std::vector<Input> inputs;
  char* out = nullptr;
};

CUresult find(CUlinkState handle, Ref<LinkState>* out) {
  *out = state()->handles.get<LinkState>(handle);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// `data` as a zero terminated text or an image that knows its size.
CUresult add(LinkState& link, CUjitInputType type, const void* data, const char* name) {
  char log[1024] = "";
  LinkState::Input input{};
  CUresult r = CUDA_ERROR_NO_BINARY_FOR_GPU;  // objects and libraries of machine code
  if (type == CU_JIT_INPUT_PTX || type == CU_JIT_INPUT_FATBINARY || type == CU_JIT_INPUT_CUBIN)
    r = read_image(data, state()->options.sm, &input.image, log, sizeof log);
  if (r != CUDA_SUCCESS) {
    link.options.finish(r, log);
    return r;
  }
  snprintf(input.name, sizeof input.name, "%s", name ? name : "");
  Lock lock(link.mutex);
  if (link.out) return CUDA_ERROR_INVALID_VALUE;
  link.inputs.push_back(input);
  return CUDA_SUCCESS;
}

CUresult complete(LinkState& link, size_t* size) {
  std::vector<ptx::LinkInput> inputs;
  for (const LinkState::Input& i : link.inputs)
    inputs.push_back({i.image->text, i.image->length, i.name[0] != 0 ? i.name : nullptr});
  char log[2048] = "";
  char* text = ptx::link(inputs.data(), inputs.size(), size, log, sizeof log);
  CUresult r = text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
  ptx::Module* code = nullptr;
  if (text) {
    code = ptx::compile(text, *size, {static_cast<uint32_t>(state()->options.sm)}, log, sizeof log);
    if (!code) r = CUDA_ERROR_INVALID_PTX;
  }
  if (code) ptx::destroy(code);
  if (r != CUDA_SUCCESS) {
    free(text);
    text = nullptr;
  }
  link.options.finish(r, log);
  link.out = text;
  return r;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuLinkCreate_v2(unsigned count, CUjit_option* options, void** values, CUlinkState* out) {
  ENTER(cuLinkCreate_v2);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  auto* link = new LinkState(count, options, values);
  state()->handles.add(link);
  *out = reinterpret_cast<CUlinkState>(link);
  return CUDA_SUCCESS;
}

SIMGPU_API cuLinkCreate(unsigned count, CUjit_option* options, void** values, CUlinkState* out) {
  return cuLinkCreate_v2(count, options, values, out);
}

SIMGPU_API cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void* data, size_t size,
                            const char* name, unsigned, CUjit_option*, void**) {
  ENTER(cuLinkAddData_v2);
  if (!data || size == 0) return CUDA_ERROR_INVALID_VALUE;
  Ref<LinkState> link;
  if (CUresult r = find(handle, &link); r != CUDA_SUCCESS) return r;
  auto* whole = static_cast<char*>(calloc(1, size + 8));  // a text may come without its end
  if (!whole) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(whole, data, size);
  CUresult r = add(*link, type, whole, name);
  free(whole);
  return r;
}

SIMGPU_API cuLinkAddData(CUlinkState handle, CUjitInputType type, void* data, size_t size,
                         const char* name, unsigned count, CUjit_option* options, void** values) {
  return cuLinkAddData_v2(handle, type, data, size, name, count, options, values);
}

SIMGPU_API cuLinkAddFile_v2(CUlinkState handle, CUjitInputType type, const char* path, unsigned,
                            CUjit_option*, void**) {
  ENTER(cuLinkAddFile_v2);
  Ref<LinkState> link;
  if (CUresult r = find(handle, &link); r != CUDA_SUCCESS) return r;
  char log[1024] = "";
  Ref<Image> image;
  CUresult r = read_image_file(path, state()->options.sm, &image, log, sizeof log);
  return r != CUDA_SUCCESS ? r : add(*link, type, image->text, path);
}

SIMGPU_API cuLinkAddFile(CUlinkState handle, CUjitInputType type, const char* path, unsigned count,
                         CUjit_option* options, void** values) {
  return cuLinkAddFile_v2(handle, type, path, count, options, values);
}

SIMGPU_API cuLinkComplete(CUlinkState handle, void** cubin, size_t* size) {
  ENTER(cuLinkComplete);
  if (!cubin) return CUDA_ERROR_INVALID_VALUE;
  Ref<LinkState> link;
  if (CUresult r = find(handle, &link); r != CUDA_SUCCESS) return r;
  Lock lock(link->mutex);
  if (link->out) return CUDA_ERROR_INVALID_VALUE;
  size_t length = 0;
  if (CUresult r = complete(*link, &length); r != CUDA_SUCCESS) return r;
  *cubin = link->out;
  if (size) *size = length + 1;
  return CUDA_SUCCESS;
}

SIMGPU_API cuLinkDestroy(CUlinkState handle) {
  ENTER(cuLinkDestroy);
  Ref<LinkState> link;
  if (CUresult r = find(handle, &link); r != CUDA_SUCCESS) return r;
  if (!state()->handles.remove(link.get())) return CUDA_ERROR_INVALID_HANDLE;
  link->release();
  return CUDA_SUCCESS;
}
