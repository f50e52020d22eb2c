#include "image/process_records.h"

#include <fmt/format.h>

namespace gpuckpt::cli {

using store::Status;

Status parse_records(std::span<const uint8_t> bytes, std::vector<Record>* out) {
  out->clear();
  bool ended = false;
  while (!bytes.empty()) {
    process::RecordHead head;
    if (bytes.size() < sizeof(head))
      return Status::Corruption("the process description ends inside a record");
    memcpy(&head, bytes.data(), sizeof(head));
    bytes = bytes.subspan(sizeof(head));
    uint64_t padded = (head.bytes + 7) & ~7ull;
    if (head.bytes > bytes.size() || padded < head.bytes) {
      return Status::Corruption("a record of the process description is cut off");
    }
    Record record{head.type, head.count, bytes.first(head.bytes)};
    if (out->empty()) {
      process::Head first;
      if (record.type != process::kRecHead || !record.get(&first) ||
          first.magic != process::kFormatMagic) {
        return Status::Corruption("the process description does not begin as one");
      }
      if (first.version != process::kFormatVersion) {
        return Status::Incompatible(
            fmt::format("the process description has version {}; this gpuckpt reads version {}",
                        first.version, process::kFormatVersion));
      }
    }
    ended = ended || record.type == process::kRecEnd;
    out->push_back(record);
    bytes = bytes.subspan(std::min<uint64_t>(padded, bytes.size()));
  }
  return ended ? Status::Ok() : Status::Corruption("the process description is cut short");
}

}  // namespace gpuckpt::cli
