#include "ptx/fatbin.h"

#include "ptx/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

namespace simgpu::ptx {
namespace {

constexpr uint32_t kWrapper = 0x466243b1, kContainer = 0xba55ed50;
constexpr uint32_t kLinkedWrapper = 2;  // version of a wrapper
constexpr uint16_t kKindPtx = 1;
constexpr uint64_t kFlagLz4 = 0x2000, kFlagZstd = 0x8000;
constexpr size_t kMinimumHeader = 64;
constexpr uint64_t kLargestText = 1u << 30;

template <typename T>
T read(const uint8_t* p) {
  T value;
  memcpy(&value, p, sizeof value);
  return value;
}

struct Entry {
  uint16_t kind;
  uint32_t target;
  uint64_t flags;
  const uint8_t* payload;
  uint64_t payload_bytes;     // as stored, with padding
  uint32_t compressed_bytes;  // 0: plain
  uint64_t plain_bytes;
};

// Reads the entry at `p`, and where the next one starts. False when it does not fit before `end`.
bool read_entry(const uint8_t* p, const uint8_t* end, Entry* out, const uint8_t** next) {
  auto left = static_cast<uint64_t>(end - p);
  if (left < kMinimumHeader) return false;
  auto header = read<uint32_t>(p + 4);
  auto payload = read<uint64_t>(p + 8);
  if (header < kMinimumHeader || header > left || payload > left - header) return false;
  *out = {read<uint16_t>(p), read<uint32_t>(p + 28), read<uint64_t>(p + 40), p + header,
          payload,           read<uint32_t>(p + 16), read<uint64_t>(p + 56)};
  *next = p + header + payload;
  return out->compressed_bytes <= payload;
}

// Reads the rest of a token's length, which continues in the following bytes while they are 255.
bool lz4_length(const uint8_t** in, const uint8_t* in_end, size_t* length) {
  uint8_t byte;
  do {
    if (*in == in_end) return false;
    byte = *(*in)++;
    *length += byte;
  } while (byte == 255);
  return true;
}

// Decodes one raw LZ4 block: literals, then copies of earlier output. True when it fills `out`
// exactly.
bool lz4_block(const uint8_t* in, size_t in_bytes, uint8_t* out, size_t out_bytes) {
  const uint8_t* in_end = in + in_bytes;
  uint8_t* const out_begin = out;
  uint8_t* const out_end = out + out_bytes;
  while (in < in_end) {
    uint8_t token = *in++;
    size_t literals = token >> 4;
    if (literals == 15 && !lz4_length(&in, in_end, &literals)) return false;
    if (literals > static_cast<size_t>(in_end - in) ||
        literals > static_cast<size_t>(out_end - out)) {
      return false;
    }
    memcpy(out, in, literals);
    in += literals;
    out += literals;
    if (in == in_end) break;  // the last sequence has no copy
    if (in_end - in < 2) return false;
    size_t distance = read<uint16_t>(in);
    in += 2;
    size_t copy = token & 15;
    if (copy == 15 && !lz4_length(&in, in_end, &copy)) return false;
    copy += 4;
    if (distance == 0 || distance > static_cast<size_t>(out - out_begin) ||
        copy > static_cast<size_t>(out_end - out)) {
      return false;
    }
    for (; copy > 0; --copy, ++out) *out = out[-static_cast<ptrdiff_t>(distance)];
  }
  return out == out_end;
}

bool unpack(const Entry& entry, uint8_t* out) {
  if (entry.flags & kFlagZstd) {
    size_t bytes = ZSTD_decompress(out, entry.plain_bytes, entry.payload, entry.compressed_bytes);
    return !ZSTD_isError(bytes) && bytes == entry.plain_bytes;
  }
  if (entry.flags & kFlagLz4) {
    return lz4_block(entry.payload, entry.compressed_bytes, out, entry.plain_bytes);
  }
  memcpy(out, entry.payload, entry.payload_bytes);
  return true;
}

void say(char* log, size_t log_bytes, const char* what, uint32_t number) {
  if (log && log_bytes > 0) snprintf(log, log_bytes, what, number);
}

FatbinResult from_container(const uint8_t* p, uint32_t sm, char** text, size_t* length, char* log,
                            size_t log_bytes) {
  if (!p || read<uint32_t>(p) != kContainer) {
    say(log, log_bytes, "fat binary: no container at the place the wrapper names", 0);
    return FatbinResult::kCorrupt;
  }
  auto header = read<uint16_t>(p + 6);
  const uint8_t* end = p + header + read<uint64_t>(p + 8);
  Entry best = {};
  bool any = false;
  for (const uint8_t* at = p + header; at < end;) {
    Entry entry;
    if (!read_entry(at, end, &entry, &at)) {
      say(log, log_bytes, "fat binary: an entry reaches beyond the end", 0);
      return FatbinResult::kCorrupt;
    }
    if (entry.kind != kKindPtx || entry.target > sm || (any && entry.target <= best.target))
      continue;
    best = entry;
    any = true;
  }
  if (!any) {
    say(log, log_bytes,
        "fat binary: no PTX for a target up to sm_%u (build with code=compute_XX; PyTorch's "
        "operators run with `gpuckpt run --sim=torch`)",
        sm);
    return FatbinResult::kNoPtx;
  }
  bool compressed = (best.flags & (kFlagZstd | kFlagLz4)) != 0 && best.compressed_bytes != 0;
  if (!compressed) {
    best.flags = 0;
    best.plain_bytes = best.payload_bytes;
  }
  if (best.plain_bytes > kLargestText) {
    say(log, log_bytes, "fat binary: PTX for sm_%u has an impossible size", best.target);
    return FatbinResult::kCorrupt;
  }
  auto* out = static_cast<char*>(malloc(best.plain_bytes + 1));
  if (!out || !unpack(best, reinterpret_cast<uint8_t*>(out))) {
    free(out);
    say(log, log_bytes, "fat binary: PTX for sm_%u cannot be decompressed", best.target);
    return FatbinResult::kCorrupt;
  }
  out[best.plain_bytes] = 0;
  *text = out;
  *length = strlen(out);  // without the padding
  return FatbinResult::kOk;
}

// Relocatable device code: `parts` is a list of containers, ended by null, that are to be linked.
// Parts without a suitable PTX (the device runtime has machine code and PTX of the newest target
// alone) are left out; a program that needs one gets "unresolved" when the text is compiled.
FatbinResult from_parts(const uint8_t* const* parts, uint32_t sm, char** text, size_t* length,
                        char* log, size_t log_bytes) {
  constexpr size_t kMost = 4096;
  size_t count = 0, used = 0;
  while (count < kMost && parts[count]) ++count;
  auto* inputs = static_cast<LinkInput*>(calloc(count + 1, sizeof(LinkInput)));
  if (!inputs) return FatbinResult::kCorrupt;
  FatbinResult result = FatbinResult::kNoPtx;
  for (size_t k = 0; k < count; ++k) {
    char* one = nullptr;
    size_t bytes = 0;
    const FatbinResult r = from_container(parts[k], sm, &one, &bytes, log, log_bytes);
    if (r == FatbinResult::kOk) inputs[used++] = LinkInput{one, bytes, nullptr};
    if (r == FatbinResult::kNoPtx) continue;
    result = r;
    if (r == FatbinResult::kCorrupt) break;
  }
  if (result == FatbinResult::kOk) {
    *text = link(inputs, used, length, log, log_bytes);
    if (!*text) result = FatbinResult::kCorrupt;
  }
  for (size_t k = 0; k < used; ++k) free(const_cast<char*>(inputs[k].text));
  free(inputs);
  return result;
}

}  // namespace

FatbinResult extract_ptx(const void* data, uint32_t sm, char** text, size_t* length, char* log,
                         size_t log_bytes) {
  auto* p = static_cast<const uint8_t*>(data);
  if (read<uint32_t>(p) != kWrapper) return from_container(p, sm, text, length, log, log_bytes);
  const auto* parts = read<const uint8_t* const*>(p + 16);
  if (read<uint32_t>(p + 4) == kLinkedWrapper && parts && parts[0])
    return from_parts(parts, sm, text, length, log, log_bytes);
  return from_container(read<const uint8_t*>(p + 8), sm, text, length, log, log_bytes);
}

}  // namespace simgpu::ptx
