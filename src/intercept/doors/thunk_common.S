# Where generated/thunks.S jumps: %r11d = thunk number. Asks gpuckpt_thunk_enter (doors.cc) for the driver's function
# and continues there with every argument register unchanged.
	.text
	.globl gpuckpt_thunk
	.hidden gpuckpt_thunk
	.type gpuckpt_thunk, @function
gpuckpt_thunk:
	.cfi_startproc
	pushq %rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbp, 0
	movq %rsp, %rbp
	.cfi_def_cfa_register %rbp
	subq $192, %rsp
	andq $-16, %rsp
	movq %rdi, (%rsp)
	movq %rsi, 8(%rsp)
	movq %rdx, 16(%rsp)
	movq %rcx, 24(%rsp)
	movq %r8, 32(%rsp)
	movq %r9, 40(%rsp)
	movq %rax, 48(%rsp)
	movups %xmm0, 64(%rsp)
	movups %xmm1, 80(%rsp)
	movups %xmm2, 96(%rsp)
	movups %xmm3, 112(%rsp)
	movups %xmm4, 128(%rsp)
	movups %xmm5, 144(%rsp)
	movups %xmm6, 160(%rsp)
	movups %xmm7, 176(%rsp)
	movl %r11d, %edi
	call gpuckpt_thunk_enter
	movq %rax, %r11
	movq (%rsp), %rdi
	movq 8(%rsp), %rsi
	movq 16(%rsp), %rdx
	movq 24(%rsp), %rcx
	movq 32(%rsp), %r8
	movq 40(%rsp), %r9
	movq 48(%rsp), %rax
	movups 64(%rsp), %xmm0
	movups 80(%rsp), %xmm1
	movups 96(%rsp), %xmm2
	movups 112(%rsp), %xmm3
	movups 128(%rsp), %xmm4
	movups 144(%rsp), %xmm5
	movups 160(%rsp), %xmm6
	movups 176(%rsp), %xmm7
	leave
	.cfi_def_cfa %rsp, 8
	jmp *%r11
	.cfi_endproc
	.size gpuckpt_thunk, .-gpuckpt_thunk

# void* dlopen(const char* file, int mode): gpuckpt_dlopen_door (doors.cc) may replace both and says where libc's is. The
# jump at the end keeps the caller's return address, by which ld.so finds the caller's RUNPATH and $ORIGIN.
	.globl dlopen
	.type dlopen, @function
dlopen:
	.cfi_startproc
	endbr64
	subq $24, %rsp
	.cfi_adjust_cfa_offset 24
	movq %rdi, (%rsp)
	movq %rsi, 8(%rsp)
	movq %rsp, %rdi
	call gpuckpt_dlopen_door
	movq (%rsp), %rdi
	movq 8(%rsp), %rsi
	addq $24, %rsp
	.cfi_adjust_cfa_offset -24
	jmp *%rax
	.cfi_endproc
	.size dlopen, .-dlopen
	.section .note.GNU-stack,"",@progbits
