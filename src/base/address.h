// Addresses of different worlds are different types, so that the compiler refuses to mix them.
//
// Owner: none, they are values. Threads: any. Errors: none.
#pragma once

#include <cstdint>

namespace gpuckpt {

template <typename World>
struct Address {
  uint64_t value = 0;
  constexpr Address() = default;
  constexpr explicit Address(uint64_t v) : value(v) {}
  constexpr auto operator<=>(const Address&) const = default;
  constexpr Address operator+(uint64_t n) const { return Address(value + n); }
  constexpr uint64_t operator-(Address o) const { return value - o.value; }
};

using HostAddress = Address<struct HostWorld>;      // in this process, now
using ImageAddress = Address<struct ImageWorld>;    // in the process a snapshot was taken of
using DeviceAddress = Address<struct DeviceWorld>;  // what kernels and cuMem* calls see

inline constexpr uint64_t kPage = 4096;
constexpr uint64_t page_down(uint64_t a) { return a & ~(kPage - 1); }
constexpr uint64_t page_up(uint64_t a) { return (a + kPage - 1) & ~(kPage - 1); }

}  // namespace gpuckpt
