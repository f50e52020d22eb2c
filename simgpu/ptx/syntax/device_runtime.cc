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

constexpr const char* kFunctions[] = {"cudaCGGetIntrinsicHandle", "cudaCGSynchronize"};

}  // namespace

bool add_device_runtime(ModuleSyntax* module, Log* log) {
  for (const char* name : kFunctions) {
    const Symbol* symbol = module->symbols.find(Text(name));
    if (!symbol || symbol->kind != SymbolKind::kFunction || symbol->function->defined) continue;
    return parse(module, kGridGroups, sizeof kGridGroups - 1, log);
  }
  return true;
}

}  // namespace simgpu::ptx
