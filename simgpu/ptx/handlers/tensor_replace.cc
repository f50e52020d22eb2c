// Changes a tensor map in memory (tensormap.replace), and copies one to where tensor copies read
// it.
#include "ptx/handlers/async.h"
#include "ptx/handlers/matrix.h"
#include "ptx/tensor_map.h"

namespace simgpu::ptx {

namespace {

// Element types in the order of PTX, as CUtensorMapDataType has them, and their bytes.
struct ElementType {
  uint8_t type, bytes;
};
constexpr ElementType kTypes[] = {{0, 1}, {1, 2},  {2, 4}, {3, 4}, {4, 8},  {5, 8}, {6, 2},
                                  {7, 4}, {10, 4}, {8, 8}, {9, 2}, {11, 4}, {12, 4}};

TensorMap::Swizzle with_atoms(TensorMap::Swizzle s, bool of_32) {
  if (s != TensorMap::k128 && s != TensorMap::k128Atom32) return s;
  return of_32 ? TensorMap::k128Atom32 : TensorMap::k128;
}

// A program that makes a map from nothing begins with zeros, or with whatever the memory held.
void begin(TensorMap* m) {
  if (m->magic == TensorMap::kMagic) return;
  *m = TensorMap{};
  m->magic = TensorMap::kMagic;
  m->element_bytes = m->dimensions = 1;
}

void put(TensorMap* m, MapChange change, uint64_t v) {
  const unsigned n = change.index;
  switch (change.field) {
    case MapField::kAddress:
      m->address = v;
      break;
    case MapField::kRank:  // counted from zero
      m->dimensions = (uint8_t)(v + 1);
      break;
    case MapField::kBox:
      m->box[n] = (uint16_t)v;
      break;
    case MapField::kSize:
      m->last[n] = (uint32_t)v - 1;
      break;
    case MapField::kStride:
      m->strides[n] = change.pieces ? v * 16 : v;
      break;
    case MapField::kStep:
      m->step[n] = (uint8_t)v;
      break;
    case MapField::kType:
      m->type = kTypes[v].type;
      m->element_bytes = kTypes[v].bytes;
      m->flush = v == 8 || v == 12;
      break;
    case MapField::kInterleave:  // none
      break;
    case MapField::kSwizzle:
      m->swizzle = with_atoms((TensorMap::Swizzle)v, m->atoms_of_32);
      break;
    case MapField::kAtoms:
      m->atoms_of_32 = (uint8_t)v;
      m->swizzle = with_atoms(m->swizzle, v != 0);
      break;
    case MapField::kFill:
      m->nan_fill = (uint8_t)v;
      break;
  }
}

const Ins* outside(Ctx& c, const Ins* i, uint64_t a) {
  return fault(c, i, Outcome::kIllegalAddress, a,
               "tensor map at 0x%llx is outside every allocation", (unsigned long long)a);
}
const Ins* misaligned(Ctx& c, const Ins* i, uint64_t a, unsigned to) {
  return fault(c, i, Outcome::kMisaligned, a, "tensor map at 0x%llx is not aligned to %u",
               (unsigned long long)a, to);
}

}  // namespace

const Ins* op_map_replace(Ctx& c, const Ins* i) {
  const MapChange change = MapChange::unpack(i->imm);
  const bool wide = change.field == MapField::kAddress || change.field == MapField::kStride;
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    const uint64_t a = async_address(c, i->a, i->sub & kBulkTo32, i->sub & kBulkToShared, l);
    if (a % 64 != 0) return misaligned(c, i, a, 64);
    TensorMap m;
    if (!read_bytes(c, l, a, &m, sizeof m)) return outside(c, i, a);
    begin(&m);
    put(&m, change, wide ? reg64(c, i->b)[l] : (uint64_t)reg32(c, i->b)[l]);
    if (!write_bytes(c, l, a, &m, sizeof m)) return outside(c, i, a);
  }
  return i + 1;
}

const Ins* op_map_copy(Ctx& c, const Ins* i) {
  const Ins* wait = nullptr;
  if (!whole_warp(c, i, &wait)) return wait;
  const uint64_t to = async_address(c, i->a, i->sub & kBulkTo32, i->sub & kBulkToShared, 0);
  const uint64_t from = async_address(c, i->b, i->sub & kBulkFrom32, i->sub & kBulkFromShared, 0);
  if ((to | from) % 128 != 0) return misaligned(c, i, to % 128 != 0 ? to : from, 128);
  TensorMap m;
  if (!read_bytes(c, 0, from, &m, sizeof m)) return outside(c, i, from);
  if (!write_bytes(c, 0, to, &m, sizeof m)) return outside(c, i, to);
  return i + 1;
}

}  // namespace simgpu::ptx
