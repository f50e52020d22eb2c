// The writer's side of one process's ring (include/gpuckpt/wire.h).
//
// Owner: the member whose ring it is; the mapping lives as long as the writer. Threads: slots are
// freed by any. Errors: map() returns a Status.
#pragma once

#include <cstdint>

#include "gpuckpt/wire.h"
#include "store/status.h"

namespace gpuckpt::writer {

class Ring {
 public:
  store::Status map(int fd);
  wire::RingHeader* header() { return reinterpret_cast<wire::RingHeader*>(base_); }
  uint8_t* slot(uint32_t i) { return base_ + wire::kRingHeaderBytes + i * wire::kSlotBytes; }
  void free(uint32_t i);
  // Makes the producers stop waiting.
  void give_up();

 private:
  void wake();
  uint8_t* base_ = nullptr;
};

}  // namespace gpuckpt::writer
