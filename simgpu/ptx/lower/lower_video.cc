// Video instructions: on one value, and on two or four parts of a word.
#include <string.h>

#include "ptx/handlers/video.h"
#include "ptx/lower/lower_body.h"

namespace simgpu::ptx {

namespace {
const char* const kComparisons[] = {"eq", "ne", "lt", "le", "gt", "ge", nullptr};
}  // namespace

// vadd2, vabsdiff4 and so on: two or four parts of a word.
void Body::video(Parts& p) {
  static const char* const kOps[] = {"vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax", nullptr};
  const Text base = p.base();
  unsigned op = 0;
  while (kOps[op] && Text(base.data, base.size - 1) != kOps[op]) ++op;
  const Ty d = p.take_type(), a = p.take_type(), b = p.take_type();
  const bool sat = p.take("sat"), add = p.take("add");
  if (!finished(p) || !need(4, 4)) return;
  Ins i = blank();
  i.a = source(1, a);
  i.b = source(2, b);
  i.c = source(3, Ty::kB32);
  i.d = destination(0u, d);
  i.sub =
      (uint16_t)(op | (is_signed(a) ? 8 : 0) | (is_signed(b) ? 16 : 0) | (is_signed(d) ? 32 : 0) |
                 (sat ? 64 : 0) | (add ? 128 : 0) | (base[base.size - 1] == '4' ? 256 : 0));
  emit(i, b_.integer(Key{Op::kVideo}));
}

// Operand k, of which an instruction on one value may take a byte or a half.
Operand Body::part_of_word(uint32_t k, WordPart* part) {
  Operand o = operand(k);
  if (o.kind == OperandKind::kRegister) {
    *part = (WordPart)o.value;
    o.value = 0;
  }
  return o;
}

// vadd, vset and so on.
void Body::video_of_one(Parts& p) {
  static const char* const kOps[] = {"vadd", "vsub", "vabsdiff", "vmin", "vmax",
                                     "vshl", "vshr", "vmad",     "vset", nullptr};
  static const char* const kSeconds[] = {"add", "min", "max", nullptr};
  VideoAction v;
  for (unsigned k = 0; kOps[k]; ++k)
    if (p.base() == kOps[k]) v.what = (Video)k;
  const bool set = v.what == Video::kSet, mad = v.what == Video::kMad;
  const Ty d = set ? Ty::kU32 : p.take_type(), a = p.take_type(), b = p.take_type();
  for (Ty t : {d, a, b})
    if (t != Ty::kU32 && t != Ty::kS32) return error("only u32 and s32 are possible in");
  v.flags = (uint8_t)((is_signed(a) ? VideoAction::kSignedA : 0) |
                      (is_signed(b) ? VideoAction::kSignedB : 0) |
                      (is_signed(d) ? VideoAction::kSignedD : 0));
  if (!set && p.take("sat")) v.flags |= VideoAction::kSaturate;
  if (set) {
    const int how = p.take_one(kComparisons);
    if (how < 0) return error("no comparison in");
    v.detail = (uint8_t)how;
  } else if (v.what == Video::kShl || v.what == Video::kShr) {
    v.detail = p.take("wrap");
    if (v.detail == 0 && !p.take("clamp")) return error("neither clamp nor wrap in");
    if (b != Ty::kU32) return error("only u32 shifts in");
  } else if (mad) {
    if (p.take("po")) v.flags |= VideoAction::kPlusOne;
    v.detail = p.take("shr7") ? 7 : p.take("shr15") ? 15 : 0;
  }
  if (!mad) v.second = (VideoSecond)(p.take_one(kSeconds) + 1);
  if (!finished(p) || !need(3, 4)) return;
  const Operand to = part_of_word(0, &v.d), x = part_of_word(1, &v.a), y = part_of_word(2, &v.b);
  const bool third = mad || v.second != VideoSecond::kNone || v.d != WordPart::kWhole;
  if (third != (in_->operand_count == 4) ||
      (v.second != VideoSecond::kNone && v.d != WordPart::kWhole) ||
      (mad && v.d != WordPart::kWhole))
    return error("the operands do not fit");
  Ins i = blank();
  i.a = source(x, a);
  i.b = source(y, b);
  if (third) i.c = source(3, d);
  i.d = destination(to, d);
  memcpy(&i.imm, &v, sizeof v);
  emit(i, op_video);
}

// vset2 and vset4.
void Body::video_set(Parts& p) {
  const Text base = p.base();
  VideoAction v;
  v.what = Video::kSet;
  v.parts = base[base.size - 1] == '4' ? 4 : 2;
  const Ty a = p.take_type(), b = p.take_type();
  v.flags = (uint8_t)((is_signed(a) ? VideoAction::kSignedA : 0) |
                      (is_signed(b) ? VideoAction::kSignedB : 0));
  const int how = p.take_one(kComparisons);
  if (how < 0) return error("no comparison in");
  v.detail = (uint8_t)how;
  if (p.take("add")) v.second = VideoSecond::kAdd;
  if (!finished(p) || !need(4, 4)) return;
  Ins i = blank();
  i.a = source(1, a);
  i.b = source(2, b);
  i.c = source(3, Ty::kU32);
  i.d = destination(0u, Ty::kU32);
  memcpy(&i.imm, &v, sizeof v);
  emit(i, op_video);
}

}  // namespace simgpu::ptx
