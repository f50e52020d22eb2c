// Linker sessions as the program opens, feeds and ends them. See links.h.
#include "device/base/jit_options.h"
#include "device/capture/capture.h"
#include "device/modules/links.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt {
namespace device {

void free_inputs(LinkObject* link) {
  for (LinkInput& input : link->inputs) {
    release(input.name);
    release(input.bytes);
  }
  link->inputs.clear();
}

bool link_reports_later() {
  MutexLock guard(registry().lock);
  for (Object* o = registry().first(); o; o = o->next) {
    auto* link = static_cast<LinkObject*>(o);
    if (o->type == ObjectType::kLink && link->reports && !link->complete) return true;
  }
  return false;
}

bool replay_link(LinkObject* link, DeviceReport* report) {
  WithContext with(link->context);
  JitOptions options(link->options);
  CUlinkState now = nullptr;
  CUresult result = real().cuLinkCreate_v2(options.count, options.keys, options.values, &now);
  for (const LinkInput& input : link->inputs)
    if (result == CUDA_SUCCESS)
      result = real().cuLinkAddData_v2(now, input.type, input.bytes, input.size, input.name, 0,
                                       nullptr, nullptr);
  if (result != CUDA_SUCCESS)
    return report->fail(kExitIncompatible,
                        "a linker session (cuLinkCreate) cannot be made again (%d)",
                        static_cast<int>(result));
  bind(Kind::kLinkState, link->name, bits(now));
  return true;
}

namespace {

LinkObject* link_object(CUlinkState state) {
  return registry().find<LinkObject>(ObjectType::kLink, name_from(Kind::kLinkState, state));
}

CUresult note_link(CUresult result, CUlinkState* state, unsigned count, CUjit_option* options,
                   void** values) {
  if (result != CUDA_SUCCESS) return result;
  uint64_t name = new_name(Kind::kLinkState, *state), context = current_context_name();
  MutexLock guard(registry().lock);
  auto* link = registry().add<LinkObject>(ObjectType::kLink, name, context);
  if (link) link->reports = keep_options(&link->options, count, options, values);
  return result;
}

CUresult note_input(CUresult result, CUlinkState state, CUjitInputType type, const void* data,
                    size_t size, const char* name) {
  if (result != CUDA_SUCCESS) return result;
  LinkInput input = {type, keep_text(name ? name : ""), static_cast<uint8_t*>(allocate(size + 1)),
                     size};
  MutexLock guard(registry().lock);
  LinkObject* link = link_object(state);
  if (input.bytes) __builtin_memcpy(input.bytes, data, size);
  if (!link || !input.bytes || !link->inputs.push(input))
    registry().refuse("cuLinkAddData: an input of a linker session could not be recorded");
  return result;
}

CUresult note_file(CUresult result, CUlinkState state, CUjitInputType type, const char* path) {
  if (result != CUDA_SUCCESS) return result;
  FileBytes file(path);
  return note_input(result, state, type, file.bytes, file.size, path);
}

void keep_output(LinkObject* link, const void* made, size_t size) {
  link->output = static_cast<uint8_t*>(allocate(size ? size : 1));
  if (!link->output) return registry().refuse("no memory to keep what cuLinkComplete made");
  __builtin_memcpy(link->output, made, size);
}

}  // namespace
}  // namespace device

using namespace device;

CUresult hook_cuLinkCreate(unsigned int numOptions, CUjit_option* options, void** optionValues,
                           CUlinkState* stateOut) {
  return note_link(real().cuLinkCreate(numOptions, options, optionValues, stateOut), stateOut,
                   numOptions, options, optionValues);
}
CUresult hook_cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options, void** optionValues,
                              CUlinkState* stateOut) {
  return note_link(real().cuLinkCreate_v2(numOptions, options, optionValues, stateOut), stateOut,
                   numOptions, options, optionValues);
}

CUresult hook_cuLinkAddData(CUlinkState state, CUjitInputType type, void* data, size_t size,
                            const char* name, unsigned int numOptions, CUjit_option* options,
                            void** optionValues) {
  return note_input(
      real().cuLinkAddData(state, type, data, size, name, numOptions, options, optionValues), state,
      type, data, size, name);
}
CUresult hook_cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size,
                               const char* name, unsigned int numOptions, CUjit_option* options,
                               void** optionValues) {
  return note_input(
      real().cuLinkAddData_v2(state, type, data, size, name, numOptions, options, optionValues),
      state, type, data, size, name);
}
CUresult hook_cuLinkAddFile(CUlinkState state, CUjitInputType type, const char* path,
                            unsigned int numOptions, CUjit_option* options, void** optionValues) {
  return note_file(real().cuLinkAddFile(state, type, path, numOptions, options, optionValues),
                   state, type, path);
}
CUresult hook_cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path,
                               unsigned int numOptions, CUjit_option* options,
                               void** optionValues) {
  return note_file(real().cuLinkAddFile_v2(state, type, path, numOptions, options, optionValues),
                   state, type, path);
}

CUresult hook_cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  void* made = nullptr;
  size_t size = 0;
  CUresult result = real().cuLinkComplete(state, cubinOut ? &made : nullptr, &size);
  if (result != CUDA_SUCCESS) return result;
  if (sizeOut) *sizeOut = size;
  if (cubinOut) *cubinOut = made;
  MutexLock guard(registry().lock);
  LinkObject* link = link_object(state);
  if (!link) return result;
  link->complete = true;
  free_inputs(link);
  if (!link->output && made) keep_output(link, made, size);
  if (link->output && cubinOut) *cubinOut = link->output;
  return result;
}

CUresult hook_cuLinkDestroy(CUlinkState state) {
  uint64_t name = name_from(Kind::kLinkState, state);
  CUresult result = real().cuLinkDestroy(state);
  if (result != CUDA_SUCCESS) return result;
  MutexLock guard(registry().lock);
  if (auto* link = registry().find<LinkObject>(ObjectType::kLink, name)) registry().remove(link);
  return result;
}

}  // namespace gpuckpt
