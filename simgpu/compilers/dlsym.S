# void* dlsym(void* handle, const char* name): what simgpu_compilers_dlsym (library.cc) says, or libc's for -1.
# The jump keeps the caller's return address, by which libc knows what comes after the caller (RTLD_NEXT).
	.text
	.globl dlsym
	.type dlsym, @function
dlsym:
	.cfi_startproc
	endbr64
	pushq %rdi
	.cfi_adjust_cfa_offset 8
	pushq %rsi
	.cfi_adjust_cfa_offset 8
	subq $8, %rsp
	.cfi_adjust_cfa_offset 8
	call simgpu_compilers_dlsym
	addq $8, %rsp
	.cfi_adjust_cfa_offset -8
	popq %rsi
	.cfi_adjust_cfa_offset -8
	popq %rdi
	.cfi_adjust_cfa_offset -8
	cmpq $-1, %rax
	je 1f
	ret
1:	movq simgpu_compilers_libc_dlsym(%rip), %rax
	jmp *%rax
	.cfi_endproc
	.size dlsym, .-dlsym
	.section .note.GNU-stack,"",@progbits
