// Module images as applications hand them to the driver: a pointer without a size. How long they
// are, and which variables they define. Facts about the formats: docs and public headers only
// (fatbinary wrapper and container, ELF).
//
// Threads: pure functions. Malformed input is answered with false, never read past the limits it
// states; the driver itself has accepted the image before we look at it.
// Owner: the caller's bytes. Errors: false.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/base/memory.h"

namespace gpuckpt::device {

enum class ImageKind : uint32_t { kUnknown, kText, kFatbin, kElf };

struct ImageView {
  ImageKind kind = ImageKind::kUnknown;
  bool wrapped = false;  // `image` was a fatbin wrapper; bytes is the container it points to
  const void* bytes = nullptr;
  uint64_t size = 0;  // kText: with the terminating NUL
  // Relocatable device code: after `bytes` come these containers, ended by null, that are linked
  // when they are loaded. `size` is that of all, gathered (below).
  const void* const* parts = nullptr;
};

// nvcc's wrapper around a fatbin container (section .nvFatBinSegment).
struct FatbinWrapper {
  uint32_t magic;
  uint32_t version;
  const void* data;
  const void* more;  // version 1: a file's name; 2: containers to be linked, ended by null
};
inline constexpr uint32_t kLinkedWrapper = 2;  // the version with containers to be linked
inline constexpr uint32_t kWrapperMagic = 0x466243b1;
inline constexpr uint32_t kContainerMagic = 0xba55ed50;

// `limit`: the most bytes that may be looked at (a size the caller knows, or a sanity bound).
bool measure_image(const void* image, uint64_t limit, ImageView* out);

// Calls `found` for each .global/.const variable the image defines (every entry of a fatbin; names
// may repeat). `managed`: the variable is managed memory. Returns false when some part could not be
// read (unknown compression).
using FoundVariable = void (*)(void* context, const char* name, size_t length, bool managed);
bool list_variables(const ImageView& image, void* context, FoundVariable found);

// What `image.size` counts, in one piece: containers one behind the other, each at a multiple
// of 16. Of such a piece list_variables and next_container read all.
void gather(const ImageView& image, uint8_t* out);
// The container after the one at `at` in a gathered piece that ends at `end`; null: none.
const uint8_t* next_container(const uint8_t* at, const uint8_t* end);

// The pieces, for their tests.
void list_ptx_variables(const char* text, size_t length, void* context, FoundVariable found);
bool list_elf_variables(const uint8_t* bytes, size_t length, void* context, FoundVariable found);
// Raw LZ4 block. The number of bytes written, or 0 on damage.
size_t unpack_lz4(const uint8_t* in, size_t in_size, uint8_t* out, size_t out_size);

}  // namespace gpuckpt::device
