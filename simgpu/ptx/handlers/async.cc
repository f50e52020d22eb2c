// Asynchronous barriers and bulk copies, lane by lane. All blocks that can reach a barrier run on
// one worker (see Unit), so its word needs no atomic access.
//
// The 64-bit word, which PTX leaves opaque: bits 0..19 arrivals expected per phase, 20..39 arrivals
// pending, 40..61 bytes pending (signed), 62 valid, 63 phase. A token is the word before the
// arrival.
#include "ptx/handlers/async.h"

namespace simgpu::ptx {

namespace {

constexpr uint64_t kCountMask = (1u << 20) - 1;
constexpr uint64_t kBytesMask = (1u << 22) - 1;
constexpr uint64_t kValid = 1ull << 62, kPhase = 1ull << 63;

struct Mbarrier {
  uint64_t expected, pending;
  int64_t bytes;
  bool valid, phase;

  explicit Mbarrier(uint64_t w)
      : expected(w & kCountMask),
        pending(w >> 20 & kCountMask),
        bytes((int64_t)((w >> 40 & kBytesMask) << 42) >> 42),
        valid((w & kValid) != 0),
        phase((w & kPhase) != 0) {}
  uint64_t word() const {
    return expected | pending << 20 | ((uint64_t)bytes & kBytesMask) << 40 | (valid ? kValid : 0) |
           (phase ? kPhase : 0);
  }
  void complete_phase_if_due() {
    if (pending != 0 || bytes != 0) return;
    phase = !phase;
    pending = expected;
  }
};

uint64_t generic(uint64_t a, bool shared) {
  return shared && a >> 48 == 0 ? kSharedWindow | (uint32_t)a : a;
}
const Ins* no_barrier(Ctx& c, const Ins* i, uint64_t a, const char* why) {
  return fault(c, i, a & 7 ? Outcome::kMisaligned : Outcome::kIllegalAddress, a,
               "mbarrier at 0x%llx %s", (unsigned long long)a, why);
}

// The word of a barrier; null after a fault.
uint64_t* barrier_at(Ctx& c, const Ins* i, uint64_t a) {
  bool local = false;
  uint8_t* p = a & 7 || a >> 48 != kSharedWindow >> 48 ? nullptr : resolve(c, a, 8, true, &local);
  if (!p) no_barrier(c, i, a, "is not in shared memory");
  return reinterpret_cast<uint64_t*>(p);
}

}  // namespace

uint64_t async_address(Ctx& c, uint32_t operand, bool narrow, bool shared, unsigned lane) {
  return generic(narrow ? reg32(c, operand)[lane] : reg64(c, operand)[lane], shared);
}

bool bytes_arrive(Ctx& c, const Ins* i, uint64_t barrier, uint32_t bytes) {
  uint64_t* word = barrier_at(c, i, barrier);
  if (!word) return false;
  Mbarrier b(*word);
  b.bytes -= bytes;
  b.complete_phase_if_due();
  *word = b.word();
  return true;
}

bool one_arrives(Ctx& c, const Ins* i, uint64_t barrier) {
  uint64_t* word = barrier_at(c, i, barrier);
  if (!word) return false;
  Mbarrier b(*word);
  if (!b.valid || b.pending == 0) {
    no_barrier(c, i, barrier, "waits for no arrival");
    return false;
  }
  --b.pending;
  b.complete_phase_if_due();
  *word = b.word();
  return true;
}

const Ins* op_mbarrier(Ctx& c, const Ins* i) {
  const auto op = (MbarrierOp)i->imm;
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    if (op == MbarrierOp::kPending) {
      reg32(c, i->d)[l] = (uint32_t)Mbarrier(reg64(c, i->b)[l]).pending;
      continue;
    }
    const uint64_t a = async_address(c, i->a, i->sub & 1, i->sub & 2, l);
    uint64_t* word = barrier_at(c, i, a);
    if (!word) return nullptr;
    if (op == MbarrierOp::kInit) {
      const uint32_t count = reg32(c, i->b)[l];
      if (count == 0 || count > kCountMask)
        return fault(c, i, Outcome::kIllegalInstruction, a, "mbarrier for %u arrivals", count);
      Mbarrier fresh(0);
      fresh.expected = fresh.pending = count;
      fresh.valid = true;
      *word = fresh.word();
      continue;
    }
    if (op == MbarrierOp::kInval) {
      *word = 0;
      continue;
    }
    Mbarrier b(*word);
    if (!b.valid)
      return fault(c, i, Outcome::kIllegalInstruction, a, "mbarrier at 0x%llx is not initialised",
                   (unsigned long long)a);
    switch (op) {
      case MbarrierOp::kArrive:
      case MbarrierOp::kArriveDrop: {
        const uint32_t count = i->b == kNone ? 1 : reg32(c, i->b)[l];
        if (count > b.pending)
          return fault(c, i, Outcome::kIllegalInstruction, a,
                       "%u arrivals at an mbarrier that waits for %u", count, (unsigned)b.pending);
        if (i->d != kNone) reg64(c, i->d)[l] = *word;
        if (i->c != kNone) b.bytes += reg32(c, i->c)[l];
        b.pending -= count;
        if (op == MbarrierOp::kArriveDrop) b.expected -= count > b.expected ? b.expected : count;
        b.complete_phase_if_due();
        break;
      }
      case MbarrierOp::kExpect:
        b.bytes += reg32(c, i->c)[l];
        break;
      case MbarrierOp::kComplete:
        b.bytes -= reg32(c, i->c)[l];
        b.complete_phase_if_due();
        break;
      case MbarrierOp::kTestState:
      case MbarrierOp::kTestParity: {
        const bool then = op == MbarrierOp::kTestState ? (reg64(c, i->b)[l] & kPhase) != 0
                                                       : (reg32(c, i->b)[l] & 1) != 0;
        const bool over = b.phase != then;
        reg32(c, i->d)[l] = over ? ~0u : 0;
        if (!over && spins(c, i, a, *word)) c.budget = 0;
        continue;
      }
      default:
        break;
    }
    *word = b.word();
  }
  return i + 1;
}

namespace {

bool copy_bytes(Ctx& c, const Ins* i, unsigned lane, uint64_t to, uint64_t from, uint32_t bytes) {
  const Reduction by = Reduction::unpack(i->imm);
  for (uint32_t k = 0; k < bytes; k += 16) {
    uint8_t data[16];
    if (!read_bytes(c, lane, from + k, data, 16)) {
      fault(c, i, Outcome::kIllegalAddress, from + k,
            "bulk copy from 0x%llx is outside every allocation", (unsigned long long)(from + k));
      return false;
    }
    if (by.op != ReduceOp::kNone ? !reduce_bytes(c, to + k, data, 16, by)
                                 : !write_bytes(c, lane, to + k, data, 16)) {
      fault(c, i, Outcome::kIllegalAddress, to + k,
            "bulk copy to 0x%llx is outside every allocation", (unsigned long long)(to + k));
      return false;
    }
  }
  return true;
}

}  // namespace

const Ins* op_bulk_copy(Ctx& c, const Ins* i) {
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    const uint64_t to = async_address(c, i->a, i->sub & kBulkTo32, i->sub & kBulkToShared, l);
    const uint64_t from = async_address(c, i->b, i->sub & kBulkFrom32, i->sub & kBulkFromShared, l);
    const uint32_t bytes = reg32(c, i->c)[l];
    if ((to | from | bytes) & 15)
      return fault(c, i, Outcome::kMisaligned, (to & 15) != 0 ? to : from,
                   "bulk copy of %u bytes from 0x%llx to 0x%llx is not aligned to 16", bytes,
                   (unsigned long long)from, (unsigned long long)to);
    const uint64_t barrier =
        i->e == kNone ? 0 : async_address(c, i->e, i->sub & kBulkBarrier32, true, l);
    if (i->d == kNone) {
      if (!copy_bytes(c, i, l, to, from, bytes)) return nullptr;
      if (i->e != kNone && !bytes_arrive(c, i, barrier, bytes)) return nullptr;
      continue;
    }
    for (uint32_t blocks = reg32(c, i->d)[l] & 0xffff; blocks != 0; blocks &= blocks - 1) {
      const auto rank = (unsigned)__builtin_ctz(blocks);
      if (!copy_bytes(c, i, l, in_block(to, rank), from, bytes)) return nullptr;
      if (i->e != kNone && !bytes_arrive(c, i, in_block(barrier, rank), bytes)) return nullptr;
    }
  }
  return i + 1;
}

// A launch is never cancelled in favour of a block that runs: each block of the grid comes to its
// own turn.
const Ins* op_try_cancel(Ctx& c, const Ins* i) {
  static const uint8_t kNo[16] = {};
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    const uint64_t to = async_address(c, i->a, i->sub & kBulkTo32, true, l);
    const uint64_t barrier = async_address(c, i->e, i->sub & kBulkBarrier32, true, l);
    if (to % sizeof kNo != 0)
      return fault(c, i, Outcome::kMisaligned, to, "an answer of 16 bytes at 0x%llx",
                   (unsigned long long)to);
    const unsigned blocks = i->imm != 0 ? c.grid->cluster_size : 1;
    for (unsigned rank = 0; rank < blocks; ++rank) {
      const uint64_t there = i->imm != 0 ? in_block(to, rank) : to;
      if (!write_bytes(c, l, there, kNo, sizeof kNo))
        return fault(c, i, Outcome::kIllegalAddress, there, "0x%llx is not in shared memory",
                     (unsigned long long)there);
      if (!bytes_arrive(c, i, i->imm != 0 ? in_block(barrier, rank) : barrier, sizeof kNo))
        return nullptr;
    }
  }
  return i + 1;
}

const Ins* op_store_async(Ctx& c, const Ins* i) {
  const Reduction by = Reduction::unpack(i->imm);
  const uint32_t each = type_bytes(by.type), bytes = each * i->n;
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    const uint64_t to = async_address(c, i->a, i->sub & kBulkTo32, true, l);
    if (to % bytes != 0)
      return fault(c, i, Outcome::kMisaligned, to, "asynchronous store of %u bytes to 0x%llx",
                   bytes, (unsigned long long)to);
    uint8_t data[32];
    for (unsigned k = 0; k < i->n; ++k) {
      const uint64_t v = each == 8 ? reg64(c, i->list[k])[l] : (uint64_t)reg32(c, i->list[k])[l];
      memcpy(data + k * each, &v, each);
    }
    const bool there = by.op != ReduceOp::kNone ? reduce_bytes(c, to, data, bytes, by)
                                                : write_bytes(c, l, to, data, bytes);
    if (!there || to >> 48 != kSharedWindow >> 48)
      return fault(c, i, Outcome::kIllegalAddress, to, "0x%llx is not in shared memory",
                   (unsigned long long)to);
    if (!bytes_arrive(c, i, async_address(c, i->e, i->sub & kBulkBarrier32, true, l), bytes))
      return nullptr;
  }
  return i + 1;
}

const Ins* op_zero_bulk(Ctx& c, const Ins* i) {
  static const uint8_t kZeros[8] = {};
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    const uint64_t to = async_address(c, i->a, i->sub & 1, i->sub & 2, l);
    const uint64_t bytes = reg64(c, i->b)[l];
    if (((to | bytes) & 7) != 0)
      return fault(c, i, Outcome::kMisaligned, to, "bulk store of %llu bytes to 0x%llx",
                   (unsigned long long)bytes, (unsigned long long)to);
    for (uint64_t k = 0; k < bytes; k += 8)
      if (!write_bytes(c, l, to + k, kZeros, 8))
        return fault(c, i, Outcome::kIllegalAddress, to + k,
                     "bulk store to 0x%llx is outside every allocation",
                     (unsigned long long)(to + k));
  }
  return i + 1;
}

}  // namespace simgpu::ptx
