#include "ptx/handlers/video.h"

#include <string.h>

namespace simgpu::ptx {

namespace {

using Wide = __int128;

struct Place {
  unsigned at, width;
};
Place place_of(WordPart p) {
  if (p == WordPart::kWhole) return {0, 32};
  if (p >= WordPart::kH0) return {16 * ((unsigned)p - (unsigned)WordPart::kH0), 16};
  return {8 * ((unsigned)p - (unsigned)WordPart::kB0), 8};
}

int64_t extract(uint32_t word, Place p, bool is_signed) {
  const uint32_t top = word << (32 - p.width - p.at);
  return is_signed ? (int64_t)((int32_t)top >> (32 - p.width)) : (int64_t)(top >> (32 - p.width));
}

Wide clamp(Wide v, unsigned width, bool is_signed) {
  const Wide top = ((Wide)1 << (is_signed ? width - 1 : width)) - 1;
  const Wide bottom = is_signed ? -top - 1 : 0;
  return v > top ? top : v < bottom ? bottom : v;
}

bool compare(int64_t a, int64_t b, Cmp how) {
  switch (how) {
    case Cmp::kEq:
      return a == b;
    case Cmp::kNe:
      return a != b;
    case Cmp::kLt:
      return a < b;
    case Cmp::kLe:
      return a <= b;
    case Cmp::kGt:
      return a > b;
    default:
      return a >= b;
  }
}

Wide first_result(const VideoAction& v, int64_t a, int64_t b) {
  switch (v.what) {
    case Video::kAdd:
      return a + b;
    case Video::kSub:
      return a - b;
    case Video::kAbsdiff:
      return a > b ? a - b : b - a;
    case Video::kMin:
      return a < b ? a : b;
    case Video::kMax:
      return a > b ? a : b;
    case Video::kSet:
      return compare(a, b, (Cmp)v.detail);
    default: {  // shifts
      const int64_t most = b > 32 ? 32 : b, by = v.detail != 0 ? b & 31 : most;
      return v.what == Video::kShl ? (Wide)a << by : (Wide)(a >> by);
    }
  }
}

uint32_t multiply_add(const VideoAction& v, int64_t a, int64_t b, uint32_t c) {
  const bool is_signed = v.has(VideoAction::kSignedA) || v.has(VideoAction::kSignedB);
  Wide r = (Wide)a * b + (is_signed ? (Wide)(int32_t)c : (Wide)c);
  if (v.has(VideoAction::kPlusOne)) ++r;
  r >>= v.detail;
  return (uint32_t)(v.has(VideoAction::kSaturate) ? clamp(r, 32, is_signed) : r);
}

uint32_t with_third(const VideoAction& v, Wide r, uint32_t third) {
  const bool is_signed = v.has(VideoAction::kSignedD);
  const Wide c = is_signed ? (Wide)(int32_t)third : (Wide)third;
  switch (v.second) {
    case VideoSecond::kAdd:
      return (uint32_t)(r + c);
    case VideoSecond::kMin:
      return (uint32_t)(r < c ? r : c);
    case VideoSecond::kMax:
      return (uint32_t)(r > c ? r : c);
    case VideoSecond::kNone:
      break;
  }
  const Place p = place_of(v.d);
  if (p.width == 32) return (uint32_t)r;
  const uint32_t mask = ((1u << p.width) - 1) << p.at;
  return ((uint32_t)r << p.at & mask) | (third & ~mask);
}

uint32_t compare_parts(const VideoAction& v, uint32_t a, uint32_t b, uint32_t third) {
  const unsigned width = 32 / v.parts;
  uint32_t result = 0, sum = third;
  for (unsigned at = 0; at < 32; at += width) {
    const bool holds =
        compare(extract(a, {at, width}, v.has(VideoAction::kSignedA)),
                extract(b, {at, width}, v.has(VideoAction::kSignedB)), (Cmp)v.detail);
    result |= (uint32_t)holds << at;
    sum += holds;
  }
  return v.second == VideoSecond::kAdd ? sum : result;
}

uint32_t one_lane(const VideoAction& v, uint32_t a, uint32_t b, uint32_t third) {
  if (v.parts != 1) return compare_parts(v, a, b, third);
  const int64_t x = extract(a, place_of(v.a), v.has(VideoAction::kSignedA)),
                y = extract(b, place_of(v.b), v.has(VideoAction::kSignedB));
  if (v.what == Video::kMad) return multiply_add(v, x, y, third);
  Wide r = first_result(v, x, y);
  if (v.has(VideoAction::kSaturate))
    r = clamp(r, place_of(v.d).width, v.has(VideoAction::kSignedD));
  return with_third(v, r, third);
}

}  // namespace

const Ins* op_video(Ctx& c, const Ins* i) {
  VideoAction v;
  memcpy((void*)&v, &i->imm, sizeof v);
  uint32_t* d = reg32(c, i->d);
  const uint32_t *a = reg32(c, i->a), *b = reg32(c, i->b);
  const uint32_t* third = i->c == kNone ? nullptr : reg32(c, i->c);
  for (unsigned l = 0; l < kLanes; ++l)
    if (c.lanes[l]) d[l] = one_lane(v, a[l], b[l], third ? third[l] : 0);
  return i + 1;
}

}  // namespace simgpu::ptx
