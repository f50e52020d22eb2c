// PTX that the tests share.
#pragma once

#include "check.h"

// fill(p, value, n): p[i] = value. spin(flag): until *flag != 0. wild(p): writes far outside.
// counter: a variable.
inline const char* kKernels = PTX_HEAD R"(
.visible .global .align 4 .u32 counter = 5;
.visible .global .align 8 .u64 where = counter;
.visible .const .align 4 .b32 table[4] = {1, 2, 3, 4};
.visible .entry fill(.param .u64 p, .param .u32 value, .param .u32 n) {
  .reg .b32 %r<8>; .reg .b64 %d<4>; .reg .pred %p;
  ld.param.u64 %d1, [p]; ld.param.u32 %r1, [value]; ld.param.u32 %r2, [n];
  mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x; mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p, %r6, %r2; @%p ret;
  mul.wide.u32 %d2, %r6, 4; add.s64 %d3, %d1, %d2; st.global.u32 [%d3], %r1; ret;
}
.visible .entry spin(.param .u64 flag) {
  .reg .b32 %r<2>; .reg .b64 %d<2>; .reg .pred %p;
  ld.param.u64 %d1, [flag];
again: ld.volatile.global.u32 %r1, [%d1]; setp.eq.u32 %p, %r1, 0; @%p bra again; ret;
}
.visible .entry wild(.param .u64 p) {
  .reg .b32 %r<2>; .reg .b64 %d<2>;
  ld.param.u64 %d1, [p]; mov.u32 %r1, 1; st.global.u32 [%d1], %r1; ret;
}
.visible .entry count() {
  .reg .b32 %r<3>; ld.global.u32 %r1, [counter]; add.u32 %r1, %r1, 1; st.global.u32 [counter], %r1; ret;
}
.visible .entry stop() { trap; ret; }
.visible .entry bounded() .maxntid 64, 1, 1 .maxnreg 8 { ret; }
)";
