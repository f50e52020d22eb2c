// Video instructions on one value (vadd, vset, vmad and so on) and comparisons of the parts of a
// word (vset2, vset4): old code calls them by inline assembly.
#pragma once

#include "ptx/run/ir.h"

namespace simgpu::ptx {

enum class Video : uint8_t { kAdd, kSub, kAbsdiff, kMin, kMax, kShl, kShr, kMad, kSet };
enum class VideoSecond : uint8_t { kNone, kAdd, kMin, kMax };

// A whole word, or one of its bytes or halves.
enum class WordPart : uint8_t { kWhole, kB0, kB1, kB2, kB3, kH0, kH1 };

// What an instruction does; it is in Ins::imm.
struct VideoAction {
  Video what = Video::kAdd;
  WordPart a = WordPart::kWhole, b = WordPart::kWhole, d = WordPart::kWhole;
  VideoSecond second = VideoSecond::kNone;
  uint8_t parts = 1;   // kSet: of a word, each of which is compared
  uint8_t detail = 0;  // kSet: Cmp; kShl and kShr: 1 wraps; kMad: the shift to the right
  uint8_t flags = 0;
  enum : uint8_t { kSignedA = 1, kSignedB = 2, kSignedD = 4, kSaturate = 8, kPlusOne = 16 };
  bool has(uint8_t flag) const { return (flags & flag) != 0; }
};
static_assert(sizeof(VideoAction) == sizeof(int64_t));

// d = a what b, then with c, which is the third operand or, of an instruction with two, null.
const Ins* op_video(Ctx&, const Ins*);

}  // namespace simgpu::ptx
