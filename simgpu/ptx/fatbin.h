// Finds PTX text in what nvcc puts into programs: a fat binary, with one entry per target, plain or
// compressed.
//
// Layout (all little endian, entries 8-byte aligned):
//   wrapper    u32 0x466243b1, u32 version, pointer to the container, pointer; in version 2
//   (relocatable device code) the second one leads to pointers to containers, ended by null, whose
//   PTX is to be linked
//   container  u32 0xba55ed50, u16 version, u16 header size, u64 bytes of all entries; then the
//   entries entry      +0 u16 kind (1 PTX, 2 cubin), +4 u32 header size, +8 u64 payload size, +16
//   u32 compressed size (0: plain),
//              +28 u32 target, +40 u64 flags (0x2000 LZ4 raw block, 0x8000 zstd), +56 u64 plain
//              size; then the payload
#pragma once

#include <cstddef>
#include <cstdint>

namespace simgpu::ptx {

enum class FatbinResult { kOk, kNoPtx, kCorrupt };

// `data` is a wrapper or a container, `sm` the compute capability x10 of the device. Takes the PTX
// with the highest target that the device can run. *text is malloc'ed and NUL terminated; the
// caller frees it. `log` (may be null) says what is wrong. No length is known: a container must be
// trusted for its own size, as the real driver has to.
FatbinResult extract_ptx(const void* data, uint32_t sm, char** text, size_t* length, char* log,
                         size_t log_bytes);

}  // namespace simgpu::ptx
