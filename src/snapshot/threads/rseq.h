// What a thread has registered with rseq(2). glibc's area is where glibc says it is. Of another
// one, which a program registers itself (with glibc.pthread.rseq=0), only the kernel knows where it
// lies and with which signature (tracer.h).
//
// Owner: the caller's list. Threads: a parked thread for itself, then the I/O thread. Errors: an
// area that is not known.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuckpt {

enum class RseqOwner : uint8_t { kNone, kLibc, kProgram };

// By the thread itself. `fs`: its thread pointer.
RseqOwner own_rseq(uint64_t fs);

struct RseqArea {
  int tid;
  bool known;
  uint64_t address;
  uint32_t bytes, signature;
};
// Asks for each of them. On the I/O thread.
void ask_for_rseq(RseqArea* areas, size_t count);

// How long glibc's area is, as it is registered.
uint32_t libc_rseq_bytes();
inline constexpr uint32_t kLibcRseqSignature = 0x53053053;

}  // namespace gpuckpt
