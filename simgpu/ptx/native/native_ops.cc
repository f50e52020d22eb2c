#include "ptx/native/native_ops.h"

#include <pthread.h>

#include <initializer_list>

namespace simgpu::ptx {

namespace {

using namespace x86;

// Handlers by address.
class Table {
 public:
  const Known* find(Fn fn) const {
    for (size_t k = slot(fn);; k = (k + 1) % kRoom) {
      if (rows_[k].fn == fn) return &rows_[k];
      if (!rows_[k].fn) return nullptr;
    }
  }
  void fill() {
    integers();
    reals();
    comparisons();
    others();
    memory();
  }

 private:
  static constexpr size_t kRoom = 1024;
  static size_t slot(Fn fn) {
    return (size_t)((uintptr_t)fn * 0x9e3779b97f4a7c15ull >> 40) % kRoom;
  }
  void put(Fn fn, Do what, unsigned wide, unsigned detail = 0, Code code = {}) {
    if (!fn || find(fn)) return;
    size_t k = slot(fn);
    while (rows_[k].fn) k = (k + 1) % kRoom;
    rows_[k] = Known{fn, what, (uint8_t)wide, (uint8_t)detail, code};
  }
  static Key key(Op op, Ty t, Ty t2 = Ty::kNone) {
    Key k{op};
    k.t = t;
    k.t2 = t2;
    return k;
  }
  void integer(Op op, Ty t, Do what, unsigned detail = 0, Code code = {}) {
    put(b_.integer(key(op, t)), what, t != Ty::kPred && type_bytes(t) == 8, detail, code);
  }

  void integers() {
    for (Ty t : {Ty::kU32, Ty::kS32, Ty::kU64, Ty::kS64}) {
      const uint8_t w = type_bytes(t) == 8;
      const bool s = t == Ty::kS32 || t == Ty::kS64;
      integer(Op::kAdd, t, Do::kAdd, 0, Code{k0F, k66, w, (uint8_t)(w ? 0xd4 : 0xfe)});
      integer(Op::kSub, t, Do::kSub, 0, Code{k0F, k66, w, (uint8_t)(w ? 0xfb : 0xfa)});
      integer(Op::kMul, t, Do::kMul, 0, Code{k0F38, k66, w, 0x40});
      integer(Op::kMad, t, Do::kMad, 0, Code{k0F38, k66, w, 0x40});
      integer(Op::kMin, t, Do::kPlain, 0, Code{k0F38, k66, w, (uint8_t)(s ? 0x39 : 0x3b)});
      integer(Op::kMax, t, Do::kPlain, 0, Code{k0F38, k66, w, (uint8_t)(s ? 0x3d : 0x3f)});
      integer(Op::kNeg, t, Do::kNegate, 0, Code{k0F, k66, w, (uint8_t)(w ? 0xfb : 0xfa)});
      integer(Op::kShr, t, Do::kShift, s ? 2 : 1, Code{k0F38, k66, w, (uint8_t)(s ? 0x46 : 0x45)});
    }
    for (Ty t : {Ty::kB32, Ty::kB64}) {
      const uint8_t w = type_bytes(t) == 8;
      integer(Op::kAnd, t, Do::kBits, 0x41, Code{k0F, k66, w, 0xdb});
      integer(Op::kOr, t, Do::kBits, 0x45, Code{k0F, k66, w, 0xeb});
      integer(Op::kXor, t, Do::kBits, 0x47, Code{k0F, k66, w, 0xef});
      integer(Op::kNot, t, Do::kNot);
      integer(Op::kMov, t, Do::kMove);
      integer(Op::kShl, t, Do::kShift, 0, Code{k0F38, k66, w, 0x47});
      integer(Op::kSelp, t, Do::kSelect, 0, Code{k0F38, k66, w, 0x64});
    }
    integer(Op::kLop3, Ty::kB32, Do::kLogic3);
    Key to = key(Op::kCvtaTo, Ty::kU64);
    to.space = Space::kGlobal;
    put(b_.integer(to), Do::kMove, 1);
    for (Ty t : {Ty::kS32, Ty::kU32}) {
      const bool s = t == Ty::kS32;
      const Code c = s ? Code{k0F38, k66, 1, 0x28} : Code{k0F, k66, 1, 0xf4};
      put(b_.integer(key(Op::kMulWide, t)), Do::kWide, 1, s, c);
      put(b_.integer(key(Op::kMadWide, t)), Do::kMadWide, 1, s, c);
    }
    put(b_.convert(key(Op::kCvt, Ty::kS64, Ty::kS32)), Do::kExtend, 1, 1);
    put(b_.convert(key(Op::kCvt, Ty::kU64, Ty::kU32)), Do::kExtend, 1, 0);
    put(b_.convert(key(Op::kCvt, Ty::kU64, Ty::kS32)), Do::kExtend, 1, 1);
    put(b_.convert(key(Op::kCvt, Ty::kS64, Ty::kU32)), Do::kExtend, 1, 0);
    for (Ty t : {Ty::kU32, Ty::kS32})
      for (Ty from : {Ty::kU64, Ty::kS64})
        put(b_.convert(key(Op::kCvt, t, from)), Do::kTruncate, 0);
  }

  void reals() {
    for (Ty t : {Ty::kF32, Ty::kF64}) {
      const uint8_t w = t == Ty::kF64;
      const Prefix p = w ? k66 : kPlain;
      auto real = [&](Op op, Do what, unsigned detail, Code c) {
        Key k = key(op, t);
        k.round = Round::kNearest;
        put(b_.real(k), what, w, detail, c);
      };
      real(Op::kAdd, Do::kReal, 0, Code{k0F, p, w, 0x58});
      real(Op::kSub, Do::kReal, 0, Code{k0F, p, w, 0x5c});
      real(Op::kMul, Do::kReal, 0, Code{k0F, p, w, 0x59});
      real(Op::kDiv, Do::kReal, 0, Code{k0F, p, w, 0x5e});
      real(Op::kFma, Do::kFma, 0, Code{k0F38, k66, w, 0xb8});
      real(Op::kSqrt, Do::kRoot, 0, Code{k0F, p, w, 0x51});
      real(Op::kRcp, Do::kReciprocal, 0, Code{k0F, p, w, 0x5e});
      real(Op::kNeg, Do::kSign, 0, {});
      real(Op::kAbs, Do::kSign, 1, {});
    }
    Key k = key(Op::kCvt, Ty::kF32, Ty::kS32);
    k.round = Round::kNearest;
    put(b_.convert(k), Do::kFromInt, 0, 0, Code{k0F, kPlain, 0, 0x5b});
  }

  void comparisons() {
    static constexpr uint8_t kReal[18] = {0x00, 0x0c, 0x11, 0x12, 0x1e, 0x1d, 0x11, 0x12, 0x1e,
                                          0x1d, 0x08, 0x04, 0x19, 0x1a, 0x16, 0x15, 0x07, 0x03};
    static constexpr uint8_t kWhole[6] = {0, 4, 1, 2, 6, 5};
    for (unsigned c = 0; c < 18; ++c) {
      for (Ty t : {Ty::kU32, Ty::kS32, Ty::kU64, Ty::kS64, Ty::kF32, Ty::kF64}) {
        Key k = key(Op::kSetp, t);
        k.cmp = (Cmp)c;
        const uint8_t w = type_bytes(t) == 8;
        if (t == Ty::kF32 || t == Ty::kF64) {
          put(b_.integer(k), Do::kCompare, w, kReal[c], Code{k0F, w ? k66 : kPlain, w, 0xc2});
        } else if (c < 6) {
          const bool s = t == Ty::kS32 || t == Ty::kS64;
          put(b_.integer(k), Do::kCompare, w, kWhole[c],
              Code{k0F3A, k66, w, (uint8_t)(s ? 0x1f : 0x1e)});
        }
      }
    }
  }

  void others() {
    put(op_special, Do::kSpecial, 0);
    put(op_branch, Do::kBranch, 0);
    put(op_jump, Do::kJump, 0);
  }

  void memory() {
    for (Ty t : {Ty::kB32, Ty::kS32, Ty::kB64}) {
      const uint8_t w = type_bytes(t) == 8;
      Key load = key(Op::kLd, t), store = key(Op::kSt, t);
      load.wide_reg = store.wide_reg = w;
      for (Space s : {Space::kGlobal, Space::kGeneric}) {
        load.space = store.space = s;
        put(b_.memory(load), Do::kLoad, w);
        put(b_.memory(store), Do::kStore, w);
      }
      load.space = store.space = Space::kShared;
      put(b_.memory(load), Do::kLoadShared, w);
      put(b_.memory(store), Do::kStoreShared, w);
      load.space = Space::kParam;
      put(b_.memory(load), Do::kParam, w);
    }
  }

  const Backend& b_ = backend();
  Known rows_[kRoom] = {};
};

Table* table = nullptr;
pthread_once_t made = PTHREAD_ONCE_INIT;

}  // namespace

const Known* known(Fn handler, const Ins& i) {
  pthread_once(&made, [] {
    void* memory = calloc(1, sizeof(Table));
    if (!memory) abort();
    auto* t = new (memory) Table();
    t->fill();
    table = t;
  });
  const Known* k = table->find(handler);
  if (!k) return nullptr;
  const bool near = i.imm >= INT32_MIN && i.imm <= INT32_MAX;
  switch (k->what) {
    case Do::kSpecial: {
      const auto reg = (uint8_t)i.imm;
      return i.n == 4 && (reg <= kNctaidZ || reg == kLaneid) ? k : nullptr;
    }
    case Do::kParam:
      return i.a == kNone && i.n == 1 ? k : nullptr;
    case Do::kLoad:
    case Do::kStore:
      return i.a != kNone && i.n == 1 && (i.sub & 3) == 0 && near ? k : nullptr;
    case Do::kLoadShared:
    case Do::kStoreShared:
      return i.a != kNone && i.n == 1 && (i.sub & 2) == 0 && near && !((i.sub & 1) && i.a >> 31)
                 ? k
                 : nullptr;
    default:
      return k;
  }
}

}  // namespace simgpu::ptx
