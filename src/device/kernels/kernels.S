// The kernels as build.py made them: a fat binary, and its PTX alone for drivers that are too old
// for the rest of it.
  .section .rodata
  .balign 16
  .globl gpuckpt_kernels_fatbin
  .hidden gpuckpt_kernels_fatbin
gpuckpt_kernels_fatbin:
  .incbin "kernels.fatbin"
  .balign 16
  .globl gpuckpt_kernels_ptx
  .hidden gpuckpt_kernels_ptx
gpuckpt_kernels_ptx:
  .incbin "kernels.ptx"
  .byte 0
  .section .note.GNU-stack,"",@progbits
