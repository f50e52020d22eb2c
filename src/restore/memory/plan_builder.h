// Turns an image and its memory into the launcher's plan: tables of mappings, fills and
// descriptors.
//
// Owner: the caller has the bytes. Threads: one. Errors: a sentence in `error`, and no bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "restore/image/image.h"
#include "restore/memory/memory_loader.h"
#include "restore/protocol/plan.h"

namespace gpuckpt::restore {

// Numbers under which the launcher finds its descriptors.
struct PlanFds {
  std::vector<int> files, shared;
  std::map<size_t, int> files_to_write, shared_to_read;
  int pages = -1, device = -1, exe = -1, report = -1, plan = -1, highest = -1;
};
std::vector<uint8_t> build_plan(const Image&, const Memory&, const PlanFds&, uint32_t flags,
                                std::string* error);

}  // namespace gpuckpt::restore
