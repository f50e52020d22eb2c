// Gives to a restore what a sink kept in memory.
//
// Owner: the test, which keeps the extents. Threads: one at a time. Errors: none.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "snapshot/api/device_plugin.h"

// By space and address.
using Extents = std::map<uint64_t, std::map<uint64_t, std::vector<uint8_t>>>;

struct MapSource : gpuckpt::RestoreSource {
  explicit MapSource(const Extents* all) : all(all) {
    next = [](gpuckpt::RestoreSource* s, gpuckpt::RestorePiece* out) {
      return static_cast<MapSource*>(s)->give(out);
    };
    done = [](gpuckpt::RestoreSource*, const gpuckpt::RestorePiece&) {};
    blob = nullptr;
  }

  const Extents* all;

 private:
  Next give(gpuckpt::RestorePiece* out) {
    if (!started_) {
      for (auto& [space, extents] : *all)
        for (auto& [at, bytes] : extents)
          pieces_.push_back({space, at, bytes.size(), bytes.data(), 0});
      started_ = true;
    }
    if (given_ == pieces_.size()) return kEnd;
    *out = pieces_[given_++];
    return kPiece;
  }
  bool started_ = false;
  std::vector<gpuckpt::RestorePiece> pieces_;
  size_t given_ = 0;
};
