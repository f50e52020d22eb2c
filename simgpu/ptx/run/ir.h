// The internal form that runs: functions as arrays of decoded instructions, and the state of warps
// and blocks.
//
// Registers are stored lane by lane ("SoA"): a 32-bit register (and any narrower one,
// zero-extended) is 32 words, a 64-bit one 32 double words, a predicate 32 words of 0 or ~0. An
// operand is an offset into the frame's registers, or, with the top bit set, into the module's
// table of constants, which holds each constant 32 times.
#pragma once

#include "ptx/engine.h"
#include "ptx/syntax/syntax.h"

namespace simgpu::ptx {

inline constexpr uint32_t kLanes = 32;
inline constexpr uint32_t kNone = ~0u;
inline constexpr uint32_t kSites = 64;
inline constexpr uint32_t kLayouts = 16;

// Generic address windows (engine code only; no device or host address has these top 16 bits).
// An address in the shared space is 32 bits: the offset, and in the top byte 0 for one's own block
// or the rank of the block in the cluster plus one. A generic shared address is the window plus
// that.
inline constexpr uint64_t kSharedWindow = 0x00f1ull << 48;
inline constexpr uint64_t kLocalWindow = 0x00f2ull << 48;   // + offset in the thread's local memory
inline constexpr uint64_t kParamWindow = 0x00f3ull << 48;   // + offset in the kernel's parameters
inline constexpr uint64_t kGridWindow = 0x00f4ull << 48;    // + offset in the grid's workspace
inline constexpr uint64_t kLaunchWindow = 0x00f5ull << 48;  // parameters (device_launch.h)
inline constexpr uint32_t kGridBytes = 64;
inline constexpr uint32_t kLocalLimit = 512 << 10;  // bytes of local memory per thread

struct Ins;
struct Ctx;
// Executes one instruction for the lanes of Ctx::mask and returns the next one; null: Ctx::event
// says why it stops.
using Fn = const Ins* (*)(Ctx&, const Ins*);

struct Function;

struct CallSlot {
  uint32_t offset;  // in the caller's local frame
  uint32_t bytes;
};
enum class Builtin : uint8_t {
  kNo,
  kVprintf,
  kAssertFail,
  kMalloc,
  kFree,
  kSetConditional,
  kDevice,  // CallSite::device
};
struct CallSite {
  Function* callee = nullptr;  // null: indirect, through operand a
  Builtin builtin = Builtin::kNo;
  uint64_t (*device)(Ctx&, const CallSite&, uint32_t lane) = nullptr;  // device_launch.h
  uint32_t param_count = 0, result_count = 0;
  CallSlot* params = nullptr;
  CallSlot* results = nullptr;
};

enum InsFlag : uint8_t {
  kGuardNegated = 1,
  kSetsManyRegisters = 2,  // destinations must not share storage with sources
  kEndsBlock = 4,
  kNoFallThrough = 8,
  kConditional = 16,
};

struct Ins {
  Fn fn;
  Fn inner;  // the instruction under the guard
  uint32_t d, a, b, c;
  uint32_t e;  // a fourth source or a second destination
  uint32_t g;  // guard predicate
  int64_t imm;
  union {
    const Ins* target;
    CallSite* call;
    const Ins** table;  // brx
    uint32_t* list;     // operands of a vector
    const void* x;
  };
  uint32_t line;
  uint16_t sub;  // meaning depends on fn
  uint8_t n;     // vector width, table size is in imm
  uint8_t flags;
};

// Which operands of an instruction are read although most instructions write them, and how its list
// is split.
struct Roles {
  bool d_read, e_read;    // else written
  uint16_t list_written;  // that many of the list are written, the rest read
  uint16_t list_count;
};
// A basic block of the final code.
struct FlowBlock {
  uint32_t begin, end;
  uint32_t first, count;     // successors, in Function::flow_next
  const uint64_t* live_out;  // registers read later, one bit for 128 bytes of the frame
};
struct Native;

struct Function {
  const char* name = "";
  FunctionSyntax* syntax = nullptr;
  uint32_t index = 0;
  Ins* code = nullptr;
  uint32_t code_count = 0;
  uint32_t reg_bytes = 0;
  bool zero_registers = false;
  bool loops = false;  // jumps backwards, or calls
  uint32_t local_bytes = 0;
  CallSlot* params = nullptr;  // where they are in the local frame
  CallSlot* results = nullptr;
  uint32_t param_count = 0, result_count = 0;
  // For shared memory layout.
  Vec<Function*> callees;
  bool calls_indirectly = false;
  // Adds floating-point numbers atomically, or exchanges in the way in which such additions are
  // written: the result depends on the order of the blocks.
  bool depends_on_order = false;
  bool uses_tensor_memory = false;
  Vec<Symbol*> shared_used;
  bool uses_dynamic_shared = false;
  uint32_t registers = 0;
  // What the translation to machine code needs (native.h).
  const Roles* roles = nullptr;
  const FlowBlock* flow = nullptr;
  const uint32_t* flow_next = nullptr;
  uint32_t flow_count = 0;
  Native* native = nullptr;
};

struct Kernel {
  KernelInfo info{};
  Function* function = nullptr;
  uint32_t static_shared = 0;
  uint32_t dynamic_offset = 0;
  uint32_t cluster[3] = {0, 0, 0};
  bool depends_on_order = false;    // it or a function that it may call
  bool uses_tensor_memory = false;  // likewise
  mutable uint32_t translated = 0;  // shapes of warps for which machine code was made (native.h)
};

// ---- running ----

struct Frame {
  Frame* next;  // all frames of the warp but the root
  Frame** link;
  Frame* parent;
  const Ins* return_to;
  const CallSite* site;
  Function* function;
  uint8_t* regs;
  uint32_t lanes;  // still in this frame or above
  uint32_t depth;
  uint32_t local_base;  // of this frame in local memory
  uint32_t local_top;   // end of it, allocas included
};

enum class GroupState : uint8_t { kReady, kBarrier, kCollective, kCluster };
// Lanes of a warp that are at the same instruction of the same frame.
struct Group {
  uint32_t mask;
  GroupState state;
  uint8_t barrier;
  uint32_t age;
  const Ins* pc;
  Frame* frame;
};

struct Block;
struct Unit;
struct Grid;

struct Warp {
  Block* block = nullptr;
  uint32_t id = 0;
  uint32_t live = 0;     // lanes that have not exited
  uint32_t initial = 0;  // lanes that exist
  uint32_t group_count = 0;
  uint32_t ages = 0;
  uint32_t turns = 0;
  uint32_t favoured = 0;  // lanes that go before the others in this slice
  int64_t waited = 0;     // instructions that other groups have run since
  bool done = false;
  uint8_t* local = nullptr;  // word-interleaved: word w of lane l is at (w * 32 + l) * 4
  uint32_t local_bytes = 0;  // per lane
  uint64_t spin[4] = {};
  uint32_t spins = 0;
  uint32_t cluster_phase = 0;
  uint64_t clock = 0, clock_read = 0;  // what it was told last, and when
  Frame* frames = nullptr;
  Group groups[kLanes];
  Frame root;
  alignas(64) uint32_t tid[3][kLanes];
};

struct Barrier {
  uint32_t expected = 0;                 // threads; 0: all of the block
  uint32_t waiting = 0;                  // groups that wait
  uint32_t any = 0, all = 1, count = 0;  // of bar.red
  uint32_t arrived[kLanes] = {};         // per warp
};

struct Block {
  Unit* unit = nullptr;
  uint32_t ctaid[3] = {};
  uint32_t rank = 0;  // in its cluster
  uint32_t slot = 0;  // the number of the simulated multiprocessor
  uint32_t warp_count = 0, warps_done = 0, threads = 0;
  uint8_t* shared = nullptr;
  uint32_t shared_bytes = 0;
  uint8_t* tensor = nullptr;  // tensor_core.h
  uint32_t tensor_used = 0;   // its columns that are allocated, one bit for 32
  Warp* warps = nullptr;
  uint32_t barriers_used = 0;  // since the block began, one bit for each
  Barrier barriers[16];
};

// What the storage of a unit depends on.
struct UnitShape {
  uint32_t blocks, warps;
  uint32_t registers, shared, tensor;  // bytes, of a warp and twice of a block
  uint32_t block[3];
};

// Blocks that run on one worker at a time: one block, or all of a cluster.
struct Unit {
  Grid* grid = nullptr;
  Unit* next = nullptr;  // in the pool's lists
  Block* blocks = nullptr;
  uint32_t block_count = 0, blocks_done = 0;
  uint32_t live_threads = 0;
  uint32_t cluster_phase = 0, cluster_arrived = 0;
  uint8_t* memory = nullptr;
  size_t bytes = 0;
  UnitShape shape{};
};

// What run_warp ended with. kBlocked: every lane waits at a barrier.
enum class WarpState : uint8_t { kDone, kBlocked, kYield, kSpin, kError };
WarpState run_warp(Ctx& c, Warp& w, int64_t budget);

enum class Event : uint8_t {
  kNone,
  kReschedule,  // the groups changed: choose again
  kYield,       // budget used up
  kSpin,        // waits for memory that others write
  kError,
};

// The state that a handler works with. One per worker; fields describe the group that runs now.
struct Ctx {
  const uint8_t* base[2];  // registers, constants
  uint32_t mask;
  bool full;  // mask is every live lane: plain stores are allowed
  Event event;
  const int32_t* lanes;  // mask as 32 words of 0 / ~0
  int64_t budget;        // counts down, by instructions, at backward jumps
  Warp* warp;
  Block* block;
  Frame* frame;
  Group* group;
  Grid* grid;
  const Module* module;
  uint64_t job;  // whose segments are in the cache
  uint64_t epoch;
  Segment cache[4];
  uint32_t cache_next;
  Result* error;
  // For machine code (native.h).
  uint32_t variant;  // which of a run's codes fits: the launch's shape and the lanes
  uint32_t shape;
  uint32_t high;  // the highest active lane plus one
  bool chain;     // no other group waits: what follows may run at once
  uint32_t miss_site;
  uint64_t miss_address;
  Fn miss_handler;
  const uint8_t* params;
  const std::atomic<uint64_t>* epoch_now;
  Segment sites[kSites];  // what each memory access found last
  uint32_t stored;        // the mask that lane_store has as words
  alignas(64) int32_t lane_store[kLanes];
  alignas(64) int32_t guard_store[kLanes];
  alignas(64) uint64_t scratch[kLanes];
  // Registers of AVX-512, where machine code has AVX2 alone (x86_avx2.h).
  alignas(64) uint8_t vectors[32][64];
  uint32_t masks[8];
  uint32_t layouts[kLayouts];  // of a run's vectors of addresses (native_memory.cc)
};

struct Grid {
  const Launch* launch;
  const Module* module;
  const Kernel* kernel;
  Memory* memory;
  const uint8_t* params;
  uint32_t threads_per_block, warps_per_block;
  uint32_t shared_bytes;  // static + dynamic, per block
  uint32_t cluster_size;
  uint32_t cluster[3];
  uint32_t shape;            // of its warps (native.h)
  uint64_t clock_start;      // when the launch began
  class Launches* launches;  // what its blocks launch (device_launch.h)
  std::atomic<bool> stop{false};
  alignas(64) uint8_t workspace[kGridBytes];
};

inline uint8_t* at(Ctx& c, uint32_t operand) {
  return const_cast<uint8_t*>(c.base[operand >> 31]) + (operand & 0x7fffffffu);
}
inline uint32_t* reg32(Ctx& c, uint32_t o) { return reinterpret_cast<uint32_t*>(at(c, o)); }
inline uint64_t* reg64(Ctx& c, uint32_t o) { return reinterpret_cast<uint64_t*>(at(c, o)); }

struct Module {
  ModuleSyntax syntax;
  Vec<Function*> functions;  // by FunctionSyntax::index; null when not defined
  Vec<Kernel*> kernels;
  Vec<KernelInfo*> kernel_infos;
  Vec<VariableInfo> variables;
  Vec<uint64_t> addresses;       // of variables, once bound
  uint8_t* constants = nullptr;  // 64-byte aligned, each value 32 times
  size_t constants_bytes = 0;
  struct Relocation {
    uint32_t offset;  // in constants, 64-bit entries
    Symbol* symbol;
    int64_t addend;
  };
  Vec<Relocation> relocations;
  uint64_t code_base = 0;
  ~Module();
};

// Function addresses: code_base + 16 * (index + 1).
inline uint64_t code_address(const Module& m, uint32_t function_index) {
  return m.code_base + 16ull * (function_index + 1);
}

// ---- choosing handlers ----

enum class Op : uint8_t {
  kAdd,
  kSub,
  kMul,
  kMulHi,
  kMulWide,
  kMad,
  kMadHi,
  kMadWide,
  kMul24,
  kMul24Hi,
  kMad24,
  kMad24Hi,
  kSad,
  kDiv,
  kRem,
  kAbs,
  kNeg,
  kMin,
  kMax,
  kMin3,
  kMax3,
  kAnd,
  kOr,
  kXor,
  kNot,
  kCnot,
  kLop3,
  kShl,
  kShr,
  kShfLeft,
  kShfRight,
  kPopc,
  kClz,
  kBfind,
  kBrev,
  kBfe,
  kBfi,
  kFns,
  kPrmt,
  kDp4a,
  kDp2a,
  kBmsk,
  kSzext,
  kAddCarry,
  kSubCarry,
  kMadCarry,
  kFma,
  kSqrt,
  kRcp,
  kRsqrt,
  kSin,
  kCos,
  kLg2,
  kEx2,
  kTanh,
  kCopysign,
  kTestp,
  kSetp,
  kSet,
  kSelp,
  kSlct,
  kMov,
  kPack,
  kUnpack,
  kCvt,
  kCvtPack,
  kSpecial,
  kCvta,
  kCvtaTo,
  kIsspacep,
  kLd,
  kSt,
  kAtom,
  kRed,
  kShfl,
  kVote,
  kMatch,
  kRedux,
  kActivemask,
  kElect,
  kVideo,
  kMapa,
  kGetctarank,
  kCpAsync,
  kVadd,
};

enum class Round : uint8_t { kNone, kNearest, kZero, kDown, kUp, kNearestAway };
enum class Cmp : uint8_t {
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kLo,
  kLs,
  kHi,
  kHs,
  kEqu,
  kNeu,
  kLtu,
  kLeu,
  kGtu,
  kGeu,
  kNum,
  kNan,
};
enum class BoolOp : uint8_t { kNo, kAnd, kOr, kXor };

struct Key {
  Op op;
  Ty t = Ty::kNone;   // of the result
  Ty t2 = Ty::kNone;  // of the source
  Round round = Round::kNone;
  bool ftz = false, sat = false, relu = false, nan = false, xorsign = false, approx = false,
       integral = false;
  bool carry_in = false, carry_out = false, hi = false;
  bool clamp = false, shiftamt = false, abs = false, oob = false;
  Cmp cmp = Cmp::kEq;
  BoolOp bool_op = BoolOp::kNo;
  Space space = Space::kGeneric;
  uint8_t n = 1;          // vector width
  uint8_t mode = 0;       // per op: atomic op, shuffle mode, vote mode, ...
  uint8_t second = 0;     // set when a second result is wanted
  bool wide_reg = false;  // ld/st: register is 64 bits wide
  bool ordered = false;   // volatile, relaxed, acquire, ...
};

enum AtomOp : uint8_t {
  kAtomAdd,
  kAtomMin,
  kAtomMax,
  kAtomAnd,
  kAtomOr,
  kAtomXor,
  kAtomExch,
  kAtomCas,
  kAtomInc,
  kAtomDec,
};

// One per instruction set the engine is built for; the widest the machine has is used.
struct Backend {
  Fn (*integer)(const Key&);
  Fn (*real)(const Key&);
  Fn (*convert)(const Key&);
  Fn (*memory)(const Key&);
  const struct ProductOps* products;  // matrix.h
};
const Backend& backend();
enum class Vectors : uint8_t { kNone, kAvx2, kAvx512 };
Vectors backend_vectors();  // what that is built for

// ---- shared by the parts that run ----

// Ends the launch: records the first error and stops the current instruction. Always returns null.
const Ins* fault(Ctx& c, const Ins* i, Outcome outcome, uint64_t address, const char* format, ...)
    __attribute__((format(printf, 5, 6)));
// Where `bytes` at a generic address are in this process, for one lane. Local memory is not
// contiguous: null with *local set. Null otherwise means that the address is illegal.
uint8_t* resolve(Ctx& c, uint64_t address, uint32_t bytes, bool write, bool* local);
bool read_bytes(Ctx& c, uint32_t lane, uint64_t address, void* to, uint32_t bytes);
bool write_bytes(Ctx& c, uint32_t lane, uint64_t address, const void* from, uint32_t bytes);
// Finds the segment of a global address through the worker's cache; null when there is none.
const Segment* find_segment_slow(Ctx& c, uint64_t address);
inline const Segment* find_segment(Ctx& c, uint64_t address) {
  if (__builtin_expect(c.epoch == c.grid->memory->epoch.load(std::memory_order_acquire), 1))
    for (const Segment& s : c.cache)
      if (address - s.begin < s.end - s.begin) return &s;
  return find_segment_slow(c, address);
}
// Called by loads that may be part of a spin loop. True: another group must run first (c.event is
// set).
bool spins(Ctx& c, const Ins* i, uint64_t address, uint64_t value);

// Control flow (warp.cc).
const Ins* op_guarded(Ctx&, const Ins*);
const Ins* op_nop(Ctx&, const Ins*);
const Ins* op_jump(Ctx&, const Ins*);
const Ins* op_branch(Ctx&, const Ins*);
const Ins* op_brx(Ctx&, const Ins*);
const Ins* op_call(Ctx&, const Ins*);
const Ins* op_ret(Ctx&, const Ins*);
const Ins* op_exit(Ctx&, const Ins*);
const Ins* op_trap(Ctx&, const Ins*);
const Ins* op_bar(Ctx&, const Ins*);
const Ins* op_cluster(Ctx&, const Ins*);
const Ins* op_fence(Ctx&, const Ins*);
const Ins* op_sleep(Ctx&, const Ins*);
const Ins* op_special(Ctx&, const Ins*);
const Ins* op_dynamic_shared(Ctx&, const Ins*);
const Ins* op_local_address(Ctx&, const Ins*);
const Ins* op_collective(Ctx&, const Ins*);
const Ins* op_activemask(Ctx&, const Ins*);
const Ins* op_alloca(Ctx&, const Ins*);
const Ins* op_stacksave(Ctx&, const Ins*);
const Ins* op_stackrestore(Ctx&, const Ins*);
bool call_builtin(Ctx& c, const Ins* i);

enum class Collective : uint8_t {
  kShflUp,
  kShflDown,
  kShflBfly,
  kShflIdx,
  kVoteAll,
  kVoteAny,
  kVoteUni,
  kVoteBallot,
  kMatchAny,
  kMatchAll,
  kReduxAdd,
  kReduxMin,
  kReduxMax,
  kReduxAnd,
  kReduxOr,
  kReduxXor,
  kReduxMinS,
  kReduxMaxS,
  kElect,
  kSyncwarp,
  kReduxMinF,
  kReduxMaxF,
};

uint32_t predicate_mask(const void* words);  // 32 words of 0 / ~0 to bits
void expand_mask(uint32_t mask, int32_t* words);
bool reserve_local(Warp& w, uint32_t bytes);

// vprintf: formats with the arguments packed as CUDA packs them. Returns the number of bytes, -1 on
// a bad format.
int device_printf(Ctx& c, uint32_t lane, uint64_t format, uint64_t arguments);

}  // namespace simgpu::ptx
