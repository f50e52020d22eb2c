// What the packs of a store consist of, counted by codec.
//
// Owner: none. Threads: any. Errors: a Status; packs that cannot be read are counted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "store/status.h"

namespace gpuckpt::store {

struct Paths;
class Env;

struct CodecUse {
  std::string name;  // "plain", "zstd", "planes", "lz4"
  uint64_t frames = 0, plain_bytes = 0, stored_bytes = 0;
};

// Sums over the tables of all packs; a pack whose table cannot be read is left out and counted.
Status count_codecs(Env* env, const Paths& paths, std::vector<CodecUse>* out, uint64_t* unreadable);

}  // namespace gpuckpt::store
