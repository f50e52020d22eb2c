#include "store/format/format.h"

#include <xxh_x86dispatch.h>

#include "gpuckpt/wire.h"

namespace gpuckpt::store {

ChunkName sum128(const void* bytes, size_t length) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, length));
  ChunkName name;
  memcpy(name.data(), canonical.digest, name.size());
  return name;
}

std::string codec_name(uint32_t codec) {
  switch (codec) {
    case kCodecPlain:
      return "plain";
    case kCodecZstd:
      return "zstd";
    case kCodecPlanes:
    case kCodecCodedPlanes:
      return "planes";
    case kCodecLz4:
      return "lz4";
    default:
      return "codec " + std::to_string(codec);
  }
}

std::string hex(const uint8_t* bytes, size_t length) {
  static const char digits[] = "0123456789abcdef";
  std::string out;
  out.reserve(2 * length);
  for (size_t i = 0; i < length; ++i) {
    out.push_back(digits[bytes[i] >> 4]);
    out.push_back(digits[bytes[i] & 15]);
  }
  return out;
}

bool unhex(const std::string& text, uint8_t* out, size_t length) {
  if (text.size() != 2 * length) return false;
  auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  for (size_t i = 0; i < length; ++i) {
    int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return true;
}

bool all_zero(const void* bytes, size_t length) {
  const uint8_t* p = static_cast<const uint8_t*>(bytes);
  if (length == 0) return true;
  return p[0] == 0 && memcmp(p, p + 1, length - 1) == 0;
}

uint64_t chunk_unit(uint64_t space) {
  if (space & kBlobSpace) return kLargeChunk;
  return (space & wire::kPlainSpace) >= wire::kSpaceDeviceBase ? kLargeChunk : kSmallChunk;
}

}  // namespace gpuckpt::store
