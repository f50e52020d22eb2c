// Parses the blob "process" of a snapshot for verbs that show it
// (include/gpuckpt/process_format.h).
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "gpuckpt/process_format.h"
#include "store/status.h"

namespace gpuckpt::cli {

struct Record {
  uint32_t type = 0;
  uint32_t count = 0;
  std::span<const uint8_t> payload;

  // The struct at `offset`; false when the payload is too short.
  template <typename T>
  bool get(T* out, size_t offset = 0) const {
    if (payload.size() < offset || payload.size() - offset < sizeof(T)) return false;
    memcpy(out, payload.data() + offset, sizeof(T));
    return true;
  }
  // The string after a struct of `offset` bytes.
  std::string text(size_t offset) const {
    if (offset >= payload.size()) return "";
    const char* from = reinterpret_cast<const char*>(payload.data()) + offset;
    return {from, strnlen(from, payload.size() - offset)};
  }
};

// Splits the blob; checks its version and that it is complete. The records point into `bytes`.
store::Status parse_records(std::span<const uint8_t> bytes, std::vector<Record>* out);

}  // namespace gpuckpt::cli
