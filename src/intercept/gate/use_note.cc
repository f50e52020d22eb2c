#include "intercept/gate/use_note.h"

namespace gpuckpt {

std::atomic<uint64_t> use_notes[kUseNotes];

void forget_uses() {
  for (auto& note : use_notes) note.store(0, std::memory_order_relaxed);
}

}  // namespace gpuckpt
