// zstd's working memory, kept by each thread: making it anew costs more than most of the
// compression done here.
//
// Owner: the thread, until it ends. Threads: each its own. Errors: std::bad_alloc, or an error of
// zstd.
#pragma once

#include <zstd.h>

#include <cstdint>
#include <span>

#include "store/io/memory.h"

namespace gpuckpt::store {

inline ZSTD_CCtx* compressor() {
  struct Kept {
    ZSTD_CCtx* zstd = with_memory(ZSTD_createCCtx());
    ~Kept() { ZSTD_freeCCtx(zstd); }
  };
  thread_local Kept kept;
  return kept.zstd;
}

inline ZSTD_DCtx* decompressor() {
  struct Kept {
    ZSTD_DCtx* zstd = with_memory(ZSTD_createDCtx());
    ~Kept() { ZSTD_freeDCtx(zstd); }
  };
  thread_local Kept kept;
  return kept.zstd;
}

// As ZSTD_decompress: returns the plain length, or an error of zstd.
inline size_t zstd_open(std::span<const uint8_t> stored, std::span<uint8_t> plain) {
  return with_memory(ZSTD_decompressDCtx(decompressor(), plain.data(), plain.size(), stored.data(),
                                         stored.size()));
}

}  // namespace gpuckpt::store
