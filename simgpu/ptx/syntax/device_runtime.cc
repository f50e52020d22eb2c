// Functions of NVIDIA's device runtime beyond those of builtin.cc, as our own PTX text: compilers
// leave them to libcudadevrt.a.
#include "ptx/syntax/device_runtime.h"

namespace simgpu::ptx {
namespace {

// The grid's barrier (cudaCGSynchronize) counts the blocks that arrive, in the workspace of a
// cooperative launch. A block continues when all blocks of its round have arrived.
constexpr char kGridGroups[] = R"(
.visible .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope) {
  .reg .b32 %high, %low, %wanted;
  .reg .b64 %address;
  .reg .pred %other;
  mov.u32 %high, %envreg1;
  mov.u32 %low, %envreg2;
  mov.b64 %address, {%low, %high};
  ld.param.u32 %wanted, [scope];
  setp.ne.u32 %other, %wanted, 1;
  @%other mov.u64 %address, 0;
  st.param.b64 [handle], %address;
  ret;
}
.visible .func (.param .b32 result) cudaCGSynchronize(.param .b64 handle, .param .b32 flags) {
  .reg .b32 %x, %y, %z, %blocks;
  .reg .b64 %address, %count, %n, %round, %now;
  .reg .pred %none, %other, %early;
  ld.param.u64 %address, [handle];
  setp.eq.u64 %none, %address, 0;
  @%none bra REFUSED;
  barrier.sync 0;
  mov.u32 %x, %tid.x;
  mov.u32 %y, %tid.y;
  mov.u32 %z, %tid.z;
  or.b32 %x, %x, %y;
  or.b32 %x, %x, %z;
  setp.ne.u32 %other, %x, 0;
  @%other bra MEET;
  mov.u32 %x, %nctaid.x;
  mov.u32 %y, %nctaid.y;
  mov.u32 %z, %nctaid.z;
  mul.lo.u32 %blocks, %x, %y;
  mul.lo.u32 %blocks, %blocks, %z;
  cvt.u64.u32 %n, %blocks;
  fence.acq_rel.gpu;
  atom.add.u64 %count, [%address+32], 1;
  div.u64 %round, %count, %n;
  add.u64 %round, %round, 1;
  mul.lo.u64 %round, %round, %n;
WAIT:
  ld.acquire.gpu.u64 %now, [%address+32];
  setp.lt.u64 %early, %now, %round;
  @%early bra WAIT;
MEET:
  barrier.sync 0;
  st.param.b32 [result], 0;
  ret;
REFUSED:
  st.param.b32 [result], 1;
  ret;
}
)";

// cudaGetErrorString and cudaGetErrorName in kernels: of the errors that calls there give.
struct ErrorText {
  unsigned code;
  const char* name;
  const char* words;
};
constexpr ErrorText kErrorTexts[] = {
    {0, "cudaSuccess", "no error"},
    {1, "cudaErrorInvalidValue", "invalid argument"},
    {9, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {69, "cudaErrorLaunchPendingCountExceeded", "too many launches are pending"},
    {98, "cudaErrorInvalidDeviceFunction", "invalid device function"},
};

// The PTX of a function that tells a text for a code.
struct TellingFunction {
  char text[4096] = {};
  size_t size = 0;

  constexpr TellingFunction(const char* name, const char* ErrorText::*which) : function_(name) {
    bytes("other", "unrecognized error code");
    for (const ErrorText& e : kErrorTexts) bytes(e.name, e.*which);
    add(".visible .func (.param .b64 text) ");
    add(name);
    add("(.param .b32 code) {\n.reg .b32 %code; .reg .b64 %text; .reg .pred %is;\n"
        "ld.param.u32 %code, [code];\n");
    add("mov.u64 %text, ");
    variable("other");
    add(";\n");
    for (const ErrorText& e : kErrorTexts) {
      add("setp.eq.u32 %is, %code, ");
      number(e.code);
      add(";\n@%is mov.u64 %text, ");
      variable(e.name);
      add(";\n");
    }
    add("cvta.global.u64 %text, %text;\nst.param.b64 [text], %text;\nret;\n}\n");
  }

 private:
  const char* function_;

  constexpr void variable(const char* name) {
    add(function_);
    add("_");
    add(name);
  }
  constexpr void add(const char* s) {
    while (*s != 0) text[size++] = *s++;
  }
  constexpr void number(unsigned n) {
    if (n >= 10) number(n / 10);
    text[size++] = (char)('0' + n % 10);
  }
  constexpr void bytes(const char* name, const char* s) {
    unsigned count = 1;
    for (const char* c = s; *c != 0; ++c) ++count;
    add(".global .align 1 .b8 ");
    variable(name);
    add("[");
    number(count);
    add("] = {");
    for (; *s != 0; ++s) {
      number((unsigned char)*s);
      add(", ");
    }
    add("0};\n");
  }
};
constexpr TellingFunction kErrorString("__cudaCDP2GetErrorString", &ErrorText::words);
constexpr TellingFunction kErrorName("__cudaCDP2GetErrorName", &ErrorText::name);

bool is_missing(const ModuleSyntax* module, const char* name) {
  const Symbol* symbol = module->symbols.find(Text(name));
  return symbol && symbol->kind == SymbolKind::kFunction && !symbol->function->defined;
}

}  // namespace

bool add_device_runtime(ModuleSyntax* module, Log* log) {
  if ((is_missing(module, "cudaCGGetIntrinsicHandle") || is_missing(module, "cudaCGSynchronize")) &&
      !parse(module, kGridGroups, sizeof kGridGroups - 1, log))
    return false;
  if (is_missing(module, "__cudaCDP2GetErrorString") &&
      !parse(module, kErrorString.text, kErrorString.size, log))
    return false;
  return !is_missing(module, "__cudaCDP2GetErrorName") ||
         parse(module, kErrorName.text, kErrorName.size, log);
}

}  // namespace simgpu::ptx
