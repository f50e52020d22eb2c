// How the writer reads messages and slots (include/gpuckpt/wire.h). The other side can write to a
// slot at any time, and its contents are not trusted: every length is read once and bounded before
// use.
//
// Owner: the caller has the slot's mapping. Threads: one for each slot. Errors: a Status; the
// snapshot is lost then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpuckpt/wire.h"
#include "store/store.h"

namespace gpuckpt::store {

// Whether `received` bytes are a message of this build.
bool is_message(const wire::Msg& message, size_t received);
std::string message_text(const wire::Msg& message);

// `slot`: kSlotBytes, header first.
// kMsgData: puts the slot's runs into the spaces of that member of the job. An error means that the
// sender contradicts itself; the snapshot is lost then.
Status put_slot(const uint8_t* slot, SnapshotWriter& writer, uint32_t member = 0);
// The bytes that its runs claim to cover, zeros included: for statistics.
uint64_t covered_by_slot(const uint8_t* slot);
// kMsgBlob: its payload is appended to blob `name`, and to `copy` (may be null).
Status put_slot_blob(const uint8_t* slot, const std::string& name, SnapshotWriter& writer,
                     std::vector<uint8_t>* copy = nullptr);

}  // namespace gpuckpt::store
