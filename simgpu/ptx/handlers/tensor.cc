// Copies between global and shared memory that a tensor map describes, row by row. Elements outside
// of the tensor read as zeros (or NaN) and are not written.
#define SIMGPU_ARCH scalar
#include "ptx/tensor_map.h"

#include "ptx/handlers/async.h"

namespace simgpu::ptx {

namespace {

constexpr uint32_t kMostRow = 256 * 8;

// Where a byte of the box lies: 16-byte pieces (or 32-byte ones) of a span are exchanged by the
// number of the 128 bytes that they are in. By address, so that boxes side by side agree.
uint64_t swizzled(TensorMap::Swizzle s, uint64_t address) {
  const uint64_t line = address >> 7;
  switch (s) {
    case TensorMap::k32:
      return address ^ (line & 1) << 4;
    case TensorMap::k64:
      return address ^ (line & 3) << 4;
    case TensorMap::k128:
      return address ^ (line & 7) << 4;
    case TensorMap::k128Atom32:
      return address ^ (line & 3) << 5;
    default:
      return address;
  }
}

// Elements as PTX knows them, by CUtensorMapDataType.
Ty type_of(const TensorMap& m) {
  static const Ty kTypes[] = {Ty::kU8,  Ty::kU16, Ty::kU32,  Ty::kS32, Ty::kU64, Ty::kS64, Ty::kF16,
                              Ty::kF32, Ty::kF64, Ty::kBF16, Ty::kF32, Ty::kF32, Ty::kF32};
  return m.type < sizeof kTypes / sizeof *kTypes ? kTypes[m.type] : Ty::kNone;
}

class TensorCopy {
 public:
  TensorCopy(Ctx& c, const Ins* i, unsigned lane, const TensorMap& map, TensorShape shape)
      : c_(c), i_(i), lane_(lane), m_(map), shape_(shape) {
    for (unsigned d = 0; d < shape.coordinates(); ++d)
      at_[d] = (int32_t)reg32(c, i->list[kTensorCoordinate + d])[lane];
    for (unsigned d = 0; d < 3; ++d)
      if (i->list[kTensorOffset + d] != kNone)
        by_[d] = reg32(c, i->list[kTensorOffset + d])[lane] & 0xffff;
  }
  uint32_t bytes() const { return bytes_; }  // of the box

  // False after a fault.
  bool run(uint64_t shared) {
    shared_ = shared;
    bytes_ = 0;
    if (shape_.four_rows) return chosen_rows();
    return shape_.im2col ? pixels() : rows(m_.dimensions - 1u, at_);
  }

 private:
  uint32_t row_elements() const { return m_.box[0]; }

  // Copies all rows of the box below dimension d, at `at`.
  bool rows(unsigned d, const int64_t* at) {
    if (d == 0) return row(at);
    int64_t here[5];
    for (unsigned k = 0; k < 5; ++k) here[k] = at[k];
    for (uint32_t k = 0; k < m_.box[d]; k += m_.step[d]) {
      here[d] = at[d] + k;
      if (!rows(d - 1, here)) return false;
    }
    return true;
  }

  // Four rows of a matrix, wherever they lie, one behind the other.
  bool chosen_rows() {
    for (unsigned k = 1; k < 5; ++k) {
      const int64_t here[5] = {at_[0], at_[k]};
      if (!row(here)) return false;
    }
    return true;
  }

  // Pixels one after the other, W first, within the bounding box; each read where the offsets say.
  bool pixels() {
    const unsigned space = m_.dimensions - 2u;  // of W, H, D
    int64_t at[5];
    for (unsigned d = 0; d < 5; ++d) at[d] = at_[d];
    for (uint32_t k = 0; k < m_.box[1]; ++k) {
      int64_t here[5];
      for (unsigned d = 0; d < 5; ++d)
        here[d] = at[d] + (d >= 1 && d <= space ? (int64_t)by_[d - 1] : 0);
      if (!row(here)) return false;
      unsigned d = 1;
      for (; d <= space; ++d) {
        at[d] += m_.step[d];
        if (at[d] <= (int64_t)m_.last[d] + m_.upper[d - 1]) break;
        at[d] = m_.lower[d - 1];
      }
      if (d > space) at[d] += m_.step[d];
    }
    return true;
  }

  // Copies one row, whose first element is at `at`.
  bool row(const int64_t* at) {
    const uint32_t each = m_.element_bytes, count = row_elements(), bytes = each * count;
    bool inside = true;
    uint64_t address = m_.address;
    for (unsigned d = 1; d < m_.dimensions; ++d) {
      inside &= at[d] >= 0 && at[d] <= (int64_t)m_.last[d];
      address += (uint64_t)at[d] * m_.strides[d - 1];
    }
    int64_t first = at[0] < 0 ? -at[0] : 0, end = (int64_t)m_.last[0] + 1 - at[0];
    if (end > (int64_t)count) end = count;
    if (!inside || first >= end) first = end = 0;
    address += (uint64_t)(at[0] + first) * each;
    uint8_t data[kMostRow];
    const uint64_t to = shared_ + bytes_;
    bytes_ += bytes;
    const auto from = (uint32_t)first * each, until = (uint32_t)end * each;
    if (shape_.store)
      return shared(to, data, bytes, false) &&
             (shape_.reduce != ReduceOp::kNone ? reduce(address, data + from, until - from)
                                               : global(address, data + from, until - from, true));
    fill(data, bytes);
    if (!global(address, data + from, until - from, false)) return false;
    if (m_.flush != 0) flush(data, bytes);
    return shared(to, data, bytes, true);
  }

  void fill(uint8_t* data, uint32_t bytes) const {
    memset(data, 0, bytes);
    if (m_.nan_fill == 0) return;
    memset(data, 0xff, bytes);  // NaN in every format, but for the sign
    for (uint32_t k = m_.element_bytes - 1u; k < bytes; k += m_.element_bytes) data[k] = 0x7f;
  }

  static void flush(uint8_t* data, uint32_t bytes) {
    for (uint32_t k = 0; k < bytes; k += 4) {
      uint32_t v;
      memcpy(&v, data + k, 4);
      if ((v & 0x7f800000u) == 0) v &= 0x80000000u;
      memcpy(data + k, &v, 4);
    }
  }

  bool shared(uint64_t at, uint8_t* data, uint32_t bytes, bool write) {
    for (uint32_t k = 0; k < bytes; k += 16) {
      const uint64_t where = swizzled(m_.swizzle, at + k);
      if (write ? write_bytes(c_, lane_, where, data + k, 16)
                : read_bytes(c_, lane_, where, data + k, 16))
        continue;
      fault(c_, i_, Outcome::kIllegalAddress, where,
            "tensor copy: 0x%llx is outside of shared memory", (unsigned long long)where);
      return false;
    }
    return true;
  }

  // In one copy where the row is contiguous.
  bool global(uint64_t at, uint8_t* data, uint32_t bytes, bool write) {
    auto move = [&](uint64_t a, uint8_t* p, uint32_t n) {
      return write ? write_bytes(c_, lane_, a, p, n) : read_bytes(c_, lane_, a, p, n);
    };
    if (bytes == 0 || move(at, data, bytes)) return true;
    for (uint32_t k = 0; k < bytes; ++k) {
      if (move(at + k, data + k, 1)) continue;
      fault(c_, i_, Outcome::kIllegalAddress, at + k,
            "tensor copy: 0x%llx is outside every allocation", (unsigned long long)(at + k));
      return false;
    }
    return true;
  }

  bool reduce(uint64_t at, const uint8_t* data, uint32_t bytes) {
    if (reduce_bytes(c_, at, data, bytes, {shape_.reduce, type_of(m_)})) return true;
    fault(c_, i_, Outcome::kIllegalAddress, at, "tensor copy: 0x%llx is outside every allocation",
          (unsigned long long)at);
    return false;
  }

  Ctx& c_;
  const Ins* i_;
  const unsigned lane_;
  const TensorMap& m_;
  const TensorShape shape_;
  int64_t at_[5] = {};
  uint32_t by_[3] = {};
  uint64_t shared_ = 0;
  uint32_t bytes_ = 0;
};

// Null when the map fits the instruction; else the reason why it does not.
const char* misfit(const TensorMap& m, const TensorShape& shape) {
  if (m.magic != TensorMap::kMagic) return "holds no tensor map";
  if (m.dimensions != shape.dimensions) return "has another number of dimensions";
  for (unsigned d = 1; d < m.dimensions && m.mode == TensorMap::kTiled; ++d)
    if (m.step[d] == 0) return "has an element stride of 0";
  if (m.box[0] > kMostRow / 8) return "has a box that is too wide";
  if (m.mode == TensorMap::kIm2colWide) return "is for im2col::w, which is not simulated";
  if (shape.reduce != ReduceOp::kNone && !reduction_exists(shape.reduce, type_of(m)))
    return "has elements that cannot be reduced so";
  if (shape.four_rows && m.box[1] != 1) return "has a box of more than one row";
  if ((m.mode == TensorMap::kIm2col) != shape.im2col) return "is of another mode (tile, im2col)";
  return nullptr;
}

}  // namespace

const Ins* op_tensor_copy(Ctx& c, const Ins* i) {
  const TensorShape shape = TensorShape::unpack(i->imm);
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    const uint64_t shared = async_address(c, i->a, i->sub & kBulkTo32, true, l);
    const uint64_t where = reg64(c, i->b)[l];
    TensorMap map;
    if (where % 64 != 0 || shared % 128 != 0)
      return fault(c, i, Outcome::kMisaligned, where % 64 != 0 ? where : shared,
                   "tensor copy: a map is aligned to 64 bytes (0x%llx), a box to 128 (0x%llx)",
                   (unsigned long long)where, (unsigned long long)shared);
    if (!read_bytes(c, l, where, &map, sizeof map))
      return fault(c, i, Outcome::kIllegalAddress, where,
                   "tensor map at 0x%llx is outside every allocation", (unsigned long long)where);
    if (const char* why = misfit(map, shape))
      return fault(c, i, Outcome::kIllegalInstruction, where, "what lies at 0x%llx %s",
                   (unsigned long long)where, why);
    TensorCopy copy(c, i, l, map, shape);
    const uint64_t barrier =
        i->e == kNone ? 0 : async_address(c, i->e, i->sub & kBulkBarrier32, true, l);
    if (i->c == kNone) {
      if (!copy.run(shared)) return nullptr;
      if (i->e != kNone && !bytes_arrive(c, i, barrier, copy.bytes())) return nullptr;
      continue;
    }
    for (uint32_t blocks = reg32(c, i->c)[l] & 0xffff; blocks != 0; blocks &= blocks - 1) {
      const auto rank = (unsigned)__builtin_ctz(blocks);
      if (!copy.run(in_block(shared, rank))) return nullptr;
      if (!bytes_arrive(c, i, in_block(barrier, rank), copy.bytes())) return nullptr;
    }
  }
  return i + 1;
}

}  // namespace simgpu::ptx
