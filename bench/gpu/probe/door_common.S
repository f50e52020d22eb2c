# door_common: registers as the caller left them, stub number in %r11d. Saves what carries arguments, asks door_enter
# where to go, and goes there.
        .text
        .type door_common, @function
        .hidden door_common
        .globl door_common
door_common:
        push %rbp
        mov %rsp, %rbp
        push %rdi
        push %rsi
        push %rdx
        push %rcx
        push %r8
        push %r9
        sub $128, %rsp
        movups %xmm0, (%rsp)
        movups %xmm1, 16(%rsp)
        movups %xmm2, 32(%rsp)
        movups %xmm3, 48(%rsp)
        movups %xmm4, 64(%rsp)
        movups %xmm5, 80(%rsp)
        movups %xmm6, 96(%rsp)
        movups %xmm7, 112(%rsp)
        mov %r11d, %edi
        lea 8(%rbp), %rsi
        call door_enter
        mov %rax, %r11
        movups (%rsp), %xmm0
        movups 16(%rsp), %xmm1
        movups 32(%rsp), %xmm2
        movups 48(%rsp), %xmm3
        movups 64(%rsp), %xmm4
        movups 80(%rsp), %xmm5
        movups 96(%rsp), %xmm6
        movups 112(%rsp), %xmm7
        add $128, %rsp
        pop %r9
        pop %r8
        pop %rcx
        pop %rdx
        pop %rsi
        pop %rdi
        pop %rbp
        jmp *%r11

# The driver call returns here; door_leave knows the true return address.
        .type door_return, @function
        .hidden door_return
        .globl door_return
door_return:
        sub $8, %rsp
        push %rax
        push %rdx
        sub $8, %rsp
        call door_leave
        mov %rax, 24(%rsp)
        add $8, %rsp
        pop %rdx
        pop %rax
        ret
        .section .note.GNU-stack,"",@progbits
