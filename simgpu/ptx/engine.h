// The PTX engine: compiles PTX text to an internal form and runs grids of it on CPU cores. It does
// not know the driver API; the simulated driver (simgpu/driver) is its only user.
//
// Import profile: libc only, no PT_TLS, no libstdc++ at run time (see simgpu/README.md), no
// exceptions, no RTTI. Threads: a Module is immutable after bind(); any number of threads may
// launch from it at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace simgpu::ptx {

struct ParamInfo {
  uint32_t offset;  // in the packed parameter buffer
  uint32_t size;
  uint32_t align;
};

// The initial value of a .texref, .samplerref or .surfref variable; -1: not given. Numbers of
// AddressMode and Filter (texture.h).
enum class Opaque : uint8_t { kNo, kTexture, kSampler, kSurface };
struct ReferenceInit {
  int8_t address[3] = {-1, -1, -1};
  int8_t filter = -1;
  int8_t normalized = -1;
};

// A module-scope .global or .const variable. A texture, sampler or surface reference has a size, a
// place and an address as other variables do; its address is what texture instructions pass to
// Textures (texture.h) as a handle, and nothing reads its bytes.
struct VariableInfo {
  const char* name;
  uint64_t size;  // bytes; 0 for an unsized extern
  uint32_t align;
  bool constant;  // .const
  bool external;  // .extern: must be bound by the caller, or launches that touch it fail
  bool managed;   // .attribute(.managed)
  Opaque opaque;
  ReferenceInit init;
};

struct KernelInfo {
  const char* name;
  uint32_t param_count;
  const ParamInfo* params;
  uint32_t param_bytes;
  uint32_t static_shared_bytes;
  uint32_t local_bytes;        // per thread
  uint32_t registers;          // an estimate, for CU_FUNC_ATTRIBUTE_NUM_REGS
  uint32_t max_threads;        // .maxntid product, 1024 when absent
  uint32_t required_block[3];  // .reqntid, 0 when absent
};

struct CompileOptions {
  uint32_t sm;  // compute capability x10 of the device (90): .target above it is refused
};

class Module;

// Returns nullptr on failure; `log` (NUL terminated, may be null) then has one line per error, as
// ptxas writes them, with the PTX line number. An unknown instruction is an error here, by name and
// line, not at launch.
Module* compile(const char* text, size_t length, const CompileOptions& options, char* log,
                size_t log_bytes);
void destroy(Module*);

uint32_t kernel_count(const Module*);
const KernelInfo* kernel(const Module*, uint32_t index);
uint32_t variable_count(const Module*);
const VariableInfo* variable(const Module*, uint32_t index);

// Gives variable `index` its device address. After all are bound, `finish` resolves initialisers
// that hold addresses (of variables and of functions) and writes every initial value (zero when
// none is given) through `host_of`.
void bind(Module*, uint32_t index, uint64_t device_address);
// Function addresses are opaque 64-bit values chosen from `code_base` up; `code_bytes` says how
// much space they take.
uint64_t code_bytes(const Module*);
void finish(Module*, uint64_t code_base, class Memory&);

// The memory kernels see. The driver owns the table; the engine caches segments per worker and
// drops its cache when `epoch` changes. Addresses in no segment are illegal.
struct Segment {
  uint64_t begin, end;  // device virtual addresses
  uint8_t* host;        // where `begin` lies in this process
  bool writable;
};
class Memory {
 public:
  virtual bool find(uint64_t address, Segment* out) = 0;  // any thread
  // Gives the heap for malloc and free of kernels: a range of device memory, writable, that was
  // zero when it was first given and is used by no other kernel. All of the heap's state is in it.
  // Called when a kernel calls malloc (on any thread); false: there is no heap, and malloc returns
  // null.
  virtual bool heap(uint64_t* address, uint64_t* bytes) {
    (void)address;
    (void)bytes;
    return false;
  }
  virtual ~Memory() = default;
  std::atomic<uint64_t> epoch{1};
};

enum class Outcome : uint32_t {
  kDone,
  kIllegalAddress,  // CUDA_ERROR_ILLEGAL_ADDRESS
  kMisaligned,      // CUDA_ERROR_MISALIGNED_ADDRESS
  kIllegalInstruction,
  kInvalidPc,  // call or launch of a wild function address
  kAssert,     // CUDA_ERROR_ASSERT
  kTrap,       // CUDA_ERROR_LAUNCH_FAILED
  kCancelled,
};
struct Result {
  Outcome outcome = Outcome::kDone;
  uint64_t address = 0;  // the bad address
  uint32_t line = 0;     // PTX line
  char text[256] = {};   // a message for the user
};

// Receives the text of printf and of assertions in kernels, already formatted, from any worker.
using Output = void (*)(void* context, const char* text, size_t length);

struct Launch {
  const Module* module;
  uint32_t kernel;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t cluster[3] = {1, 1, 1};
  uint32_t dynamic_shared_bytes = 0;
  const void* params = nullptr;  // packed, KernelInfo.param_bytes
  bool cooperative = false;      // all blocks make progress together; grid-wide barriers work
  uint64_t grid_id = 0;
  Memory* memory = nullptr;
  class Textures* textures = nullptr;  // texture.h; null: no textures and surfaces
  Output output = nullptr;             // printf
  Output errors = nullptr;             // assertions
  void* output_context = nullptr;
  // Sets the value of cudaGraphSetConditional in device code. False: there is no such handle.
  bool (*set_conditional)(uint64_t handle, uint32_t value) = nullptr;
  const std::atomic<bool>* cancel = nullptr;  // polled; set when the context is torn down
};

// Links PTX texts as cuLink* and -rdc=true programs need it: one text that `compile` takes, in
// which each `.extern` has met its definition, the first of several `.weak` ones has won and names
// that are private to their text are kept apart. malloc'ed and NUL terminated; the caller frees it.
// Null on failure (a name defined twice, different address sizes); `log` says what. What stays
// `.extern` is an error when it is compiled, not here.
struct LinkInput {
  const char* text;
  size_t length;
  const char* name;  // for messages; may be null
};
char* link(const LinkInput* inputs, size_t count, size_t* length, char* log, size_t log_bytes);

// The CPU cores. The driver makes one per process (threads by pthread_create) and every stream's
// grids share it.
class Pool;
Pool* create_pool(unsigned threads);
void destroy_pool(Pool*);  // joins

// Runs the grid to its end on the pool; called from a stream's thread; several may run at once.
// Blocks make progress concurrently and fairly: a block that spins on memory another block or the
// host writes never starves that one.
Result run(Pool*, const Launch&);

}  // namespace simgpu::ptx
