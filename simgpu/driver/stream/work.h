// Work made of a function object: `new_work("memset", [=](Context&) { ... return CUDA_SUCCESS; })`.
#pragma once

#include "driver/stream/stream.h"

namespace simgpu {

template <class F>
class Call : public Work {
 public:
  Call(const char* name, F f) : name_(name), f_(std::move(f)) {}
  CUresult execute(Context& c) override { return f_(c); }
  const char* name() const override { return name_; }

 private:
  const char* name_;
  F f_;
};

template <class F>
Work* new_work(const char* name, F f) {
  return new Call<F>(name, std::move(f));
}

}  // namespace simgpu
