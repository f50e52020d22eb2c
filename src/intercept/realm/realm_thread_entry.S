# Start of every thread of the driver. The callee-saved registers lie on its stack and the stack pointer in the record
# (first word), so that a restored process can make the thread return from here without running the driver's code.
	.text
	.globl gpuckpt_driver_thread_start
	.hidden gpuckpt_driver_thread_start
	.type gpuckpt_driver_thread_start, @function
gpuckpt_driver_thread_start:
	.cfi_startproc
	endbr64
	pushq %rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbp, 0
	pushq %rbx
	.cfi_adjust_cfa_offset 8
	pushq %r12
	.cfi_adjust_cfa_offset 8
	pushq %r13
	.cfi_adjust_cfa_offset 8
	pushq %r14
	.cfi_adjust_cfa_offset 8
	pushq %r15
	.cfi_adjust_cfa_offset 8
	subq $8, %rsp
	.cfi_adjust_cfa_offset 8
	movq %rsp, (%rdi)
	call gpuckpt_driver_thread_body
.Lback:
	addq $8, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	ret
	.cfi_endproc
	.size gpuckpt_driver_thread_start, .-gpuckpt_driver_thread_start

# In a restored process the thread continues here, with %rsp = the saved stack pointer: detaches itself and returns to
# libc's start routine, which ends it.
	.globl gpuckpt_driver_thread_leave
	.hidden gpuckpt_driver_thread_leave
	.type gpuckpt_driver_thread_leave, @function
gpuckpt_driver_thread_leave:
	.cfi_startproc
	.cfi_def_cfa_offset 64
	cld
	call gpuckpt_driver_thread_detach
	xorl %eax, %eax
	jmp .Lback
	.cfi_endproc
	.size gpuckpt_driver_thread_leave, .-gpuckpt_driver_thread_leave
	.section .note.GNU-stack,"",@progbits
