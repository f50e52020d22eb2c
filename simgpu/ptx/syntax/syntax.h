// The result of parsing PTX text: symbols, and for each function a list of instructions whose
// operands are resolved (except labels, which may be defined later). Everything is allocated in the
// module's arena and points into its copy of the text.
#pragma once

#include "ptx/engine.h"
#include "ptx/support.h"

namespace simgpu::ptx {

enum class Ty : uint8_t {
  kNone,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kB8,
  kB16,
  kB32,
  kB64,
  kB128,
  kF16,
  kF16x2,
  kBF16,
  kBF16x2,
  kF32,
  kF64,
  kPred,
  kU16x2,
  kS16x2,
  kF32x2,
  kE4M3x2,
  kE5M2x2,
  kTF32,
  kE2M1x2,
  kE2M3x2,
  kE3M2x2,
  kUE8M0x2,
};
inline constexpr unsigned kTyCount = 31;

uint32_t type_bytes(Ty);             // in memory; 0 for predicates
bool type_from(Text name, Ty* out);  // "u32"

enum class Space : uint8_t { kGeneric, kGlobal, kConst, kShared, kLocal, kParam, kReg };

enum class SymbolKind : uint8_t { kRegisters, kVariable, kFunction, kPrototype };

struct FunctionSyntax;

// One piece of an initialiser: `bytes` bytes at `offset`, a number or (address of symbol + addend)
// >> shift.
struct InitPiece {
  uint32_t offset;
  uint8_t bytes;
  uint8_t shift;
  struct Symbol* symbol;
  Text late_name;  // when the symbol was not declared yet
  uint64_t value;
};

struct Symbol {
  SymbolKind kind;
  Ty type;
  Space space;
  bool external = false;
  bool managed = false;
  bool unsized = false;  // extern .shared x[]
  bool entry_param = false;
  Opaque opaque = Opaque::kNo;
  ReferenceInit init;
  Text name;
  uint32_t line = 0;
  // Registers: the first one's number in its function and how many.
  uint32_t first = 0, count = 0;
  // Variables.
  uint64_t bytes = 0;
  uint32_t align = 1;
  InitPiece* pieces = nullptr;
  uint32_t piece_count = 0;
  uint32_t index = 0;                  // in the module's table of variables, or of shared variables
  uint32_t offset = 0;                 // local: in the frame; parameter: in the buffer
  FunctionSyntax* owner = nullptr;     // of function-scope variables
  FunctionSyntax* function = nullptr;  // kFunction, kPrototype
};

enum class OperandKind : uint8_t {
  kRegister,
  kInteger,
  kFloat32,
  kFloat64,
  kSymbol,
  kAddress,
  kList,
  kSpecial,
  kName,
  kSink,
};

struct Operand {
  OperandKind kind = OperandKind::kSink;
  bool negated = false;  // !%p
  uint8_t special = 0;   // SpecialReg
  uint32_t reg = 0;
  uint32_t count = 0;    // of items
  bool indexed = false;  // name[i]: as an address, what lies there; else where it lies
  uint64_t value = 0;    // number, or byte offset of an address or symbol, or part of a register
  Symbol* symbol = nullptr;
  Text name;
  // List members; the base of an address and, when count is 2, what follows its comma; second of a
  // pair p|q.
  Operand* items = nullptr;
  bool pair = false;
  Operand* second = nullptr;  // of a pair {list}|p
};

struct InstructionSyntax {
  Text opcode;  // with all its modifiers
  Operand* operands;
  uint32_t operand_count;
  uint32_t line;
  uint32_t scope;
  bool guarded, guard_negated;
  uint32_t guard;
};

struct LabelSyntax {
  Text name;
  uint32_t at;  // index of the instruction that follows
  // .branchtargets: the names it lists
  Text* targets;
  uint32_t target_count;
};

struct RegisterSyntax {
  Ty type;
};

struct FunctionSyntax {
  Text name;
  bool entry = false, defined = false, external = false;
  uint32_t line = 0;
  uint32_t index = 0;  // in the module's functions
  Vec<Symbol*> results, params;
  Vec<Symbol*> variables;  // function-scope local, shared, param
  Vec<RegisterSyntax> registers;
  Vec<InstructionSyntax> body;
  Vec<LabelSyntax*> labels;
  NameMap<LabelSyntax> label_map;  // by name and scope
  Vec<uint32_t> scope_parent;
  uint32_t max_registers = 0;  // .maxnreg; 0: not given
  uint32_t max_threads = 0, required[3] = {0, 0, 0};
  uint32_t cluster[3] = {0, 0, 0};
};

struct ModuleSyntax {
  Arena arena;
  char* text = nullptr;
  uint32_t target_sm = 0, version = 0;
  Vec<Symbol*> variables;  // module and function scope .global and .const
  Vec<FunctionSyntax*> functions;
  NameMap<Symbol> symbols;
  ~ModuleSyntax() {
    for (FunctionSyntax* f : functions) f->~FunctionSyntax();
  }
};

enum SpecialReg : uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneid,
  kWarpid,
  kNwarpid,
  kSmid,
  kNsmid,
  kGridid,
  kLaneEq,
  kLaneLt,
  kLaneLe,
  kLaneGt,
  kLaneGe,
  kClock,
  kClockHi,
  kClock64,
  kGlobaltimer,
  kGlobaltimerLo,
  kGlobaltimerHi,
  kDynamicShared,
  kTotalShared,
  kAggrShared,
  kReservedShared,
  kClusteridX,
  kClusteridY,
  kClusteridZ,
  kNclusteridX,
  kNclusteridY,
  kNclusteridZ,
  kClusterCtaidX,
  kClusterCtaidY,
  kClusterCtaidZ,
  kClusterNctaidX,
  kClusterNctaidY,
  kClusterNctaidZ,
  kClusterCtarank,
  kClusterNctarank,
  kIsExplicitCluster,
  kWarpSize,
  kGraphExec,
  kPm0,
  kEnvreg0,
  kEnvregLast = kEnvreg0 + 31,
  kSpecialCount,
};

// The buffer for errors: short, NUL terminated, never written beyond its end.
class Log {
 public:
  Log(char* buffer, size_t room) : buffer_(buffer), room_(buffer ? room : 0) {
    if (room_ > 0) buffer_[0] = 0;
  }
  __attribute__((format(printf, 3, 4))) void error(uint32_t line, const char* format, ...);
  uint32_t errors() const { return errors_; }

 private:
  char* buffer_;
  size_t room_, used_ = 0;
  uint32_t errors_ = 0;
};

// Fills `module` from a NUL-terminated copy of the text. False after a message.
bool parse(ModuleSyntax* module, const char* text, size_t length, Log* log);

}  // namespace simgpu::ptx
