// Stands in for simgpu/ptx where it is not built: no kernel can be loaded.
#include <stdio.h>
#include <string.h>
#include "../ptx/engine.h"
namespace simgpu::ptx {
Module* compile(const char*, size_t, const CompileOptions&, char* log, size_t n) {
  snprintf(log, n, "this build has no PTX engine");
  return nullptr;
}
void destroy(Module*) {}
uint32_t kernel_count(const Module*) { return 0; }
const KernelInfo* kernel(const Module*, uint32_t) { return nullptr; }
uint32_t variable_count(const Module*) { return 0; }
const VariableInfo* variable(const Module*, uint32_t) { return nullptr; }
void bind(Module*, uint32_t, uint64_t) {}
uint64_t code_bytes(const Module*) { return 0; }
void finish(Module*, uint64_t, Memory&) {}
Pool* create_pool(unsigned) { return nullptr; }
void destroy_pool(Pool*) {}
Result run(Pool*, const Launch&) { return {}; }
}  // namespace simgpu::ptx
