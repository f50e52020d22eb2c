// A device of one flat memory for tests of the engine: compile, bind, launch, look at the bytes.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "ptx/engine.h"

namespace simgpu::ptx::testing {

inline constexpr uint64_t kBase = 0x7000000000ull;

class FlatMemory : public Memory {
 public:
  explicit FlatMemory(size_t bytes) : bytes_(bytes, 0) {}
  bool find(uint64_t address, Segment* out) override {
    if (address < kBase || address >= kBase + bytes_.size()) return false;
    *out = Segment{kBase, kBase + bytes_.size(), bytes_.data(), true};
    return true;
  }
  uint64_t take(uint64_t bytes, uint64_t align = 256) {
    used_ = (used_ + align - 1) / align * align;
    uint64_t at = kBase + used_;
    used_ += bytes;
    if (used_ > bytes_.size()) abort();
    return at;
  }
  uint8_t* host(uint64_t address) { return bytes_.data() + (address - kBase); }

 private:
  std::vector<uint8_t> bytes_;
  uint64_t used_ = 0;
};

inline Pool* pool() {
  static Pool* p = create_pool(2);
  return p;
}

// A value packed as a kernel parameter.
struct Arg {
  std::vector<uint8_t> bytes;
  template <class T>
  Arg(T v) : bytes(sizeof(T)) {
    memcpy(bytes.data(), &v, sizeof v);
  }
};

class Gpu {
 public:
  explicit Gpu(size_t bytes = 64 << 20) : memory_(bytes) {}
  ~Gpu() { destroy(module_); }

  bool load(const std::string& text, uint32_t sm = 120) {
    char log[4096] = "";
    destroy(module_);
    module_ = compile(text.data(), text.size(), CompileOptions{sm}, log, sizeof log);
    error = log;
    if (!module_) return false;
    for (uint32_t i = 0; i < variable_count(module_); ++i)
      bind(module_, i,
           memory_.take(variable(module_, i)->size + 1,
                        variable(module_, i)->align < 16 ? 16 : variable(module_, i)->align));
    finish(module_, 0x123400000000ull, memory_);
    return true;
  }
  bool load_file(const std::string& path, uint32_t sm = 120) {
    std::ifstream in(path);
    std::stringstream s;
    s << in.rdbuf();
    return in && load(s.str(), sm);
  }

  template <class T>
  uint64_t array(const std::vector<T>& values) {
    uint64_t at = memory_.take(values.size() * sizeof(T));
    memcpy(memory_.host(at), values.data(), values.size() * sizeof(T));
    return at;
  }
  uint64_t zeros(size_t bytes) {
    uint64_t at = memory_.take(bytes);
    memset(memory_.host(at), 0, bytes);
    return at;
  }
  template <class T>
  std::vector<T> read(uint64_t at, size_t count) {
    std::vector<T> v(count);
    memcpy(v.data(), memory_.host(at), count * sizeof(T));
    return v;
  }
  uint64_t variable_address(const std::string& name) {
    // Bound in order: ask the initial addresses again is not part of the engine, so the harness
    // remembers nothing; tests that need one pass it through a kernel.
    (void)name;
    return 0;
  }

  int find_kernel(const std::string& name) {
    for (uint32_t k = 0; k < kernel_count(module_); ++k)
      if (name == kernel(module_, k)->name) return (int)k;
    return -1;
  }

  Launch prepare(const std::string& name, uint32_t grid, uint32_t block,
                 const std::vector<Arg>& args) {
    Launch l{};
    l.module = module_;
    int k = find_kernel(name);
    if (k < 0) {
      fprintf(stderr, "no kernel %s\n", name.c_str());
      abort();
    }
    l.kernel = (uint32_t)k;
    l.grid[0] = grid;
    l.block[0] = block;
    l.grid[1] = l.grid[2] = l.block[1] = l.block[2] = 1;
    const KernelInfo* info = kernel(module_, l.kernel);
    params_.assign(info->param_bytes + 1, 0);
    for (size_t i = 0; i < args.size() && i < info->param_count; ++i)
      memcpy(&params_[info->params[i].offset], args[i].bytes.data(), args[i].bytes.size());
    l.params = params_.data();
    l.memory = &memory_;
    l.output = [](void* to, const char* text, size_t n) {
      static_cast<Gpu*>(to)->output.append(text, n);
    };
    l.errors = [](void* to, const char* text, size_t n) {
      static_cast<Gpu*>(to)->errors.append(text, n);
    };
    l.output_context = this;
    return l;
  }
  Result run(const std::string& name, uint32_t grid, uint32_t block, const std::vector<Arg>& args,
             uint32_t shared = 0) {
    Launch l = prepare(name, grid, block, args);
    l.dynamic_shared_bytes = shared;
    return ptx::run(pool(), l);
  }

  std::string error, output, errors;  // of the compiler; what kernels print; failed assertions
  Module* module_ = nullptr;
  FlatMemory memory_;

 private:
  std::vector<uint8_t> params_;
};

}  // namespace simgpu::ptx::testing
