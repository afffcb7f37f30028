/* SPDX-License-Identifier: Apache-2.0

   The functions of NCCL that this library exports. Each is a trampoline: it jumps to its target in
   the table and keeps all registers and the stack. At first every target is a routine that calls
   nccltune_sendrecv_resolve, which fills the table. */

#if defined(__x86_64__)

  .macro TRAMPOLINE name
  .p2align 5
  .ascii "nccltune" /* the mark of a trampoline: see IsTrampoline in symbols.h */
  .globl \name
  .type \name, %function
\name:
  .cfi_startproc
  jmp *nccltune_sendrecv_table+8*index(%rip)
  .cfi_endproc
  .size \name, .-\name
  .set index, index+1
  .endm

  .macro FIRST name
first.\name:
  .cfi_startproc
  pushq $index
  .cfi_adjust_cfa_offset 8
  jmp resolve
  .cfi_endproc
  .set index, index+1
  .endm

  .macro SAVE register
  pushq \register
  .cfi_adjust_cfa_offset 8
  .endm

  .macro RESTORE register
  popq \register
  .cfi_adjust_cfa_offset -8
  .endm

  .text
resolve:
  .cfi_startproc
  .cfi_adjust_cfa_offset 8
  SAVE %rax
  SAVE %rdi
  SAVE %rsi
  SAVE %rdx
  SAVE %rcx
  SAVE %r8
  SAVE %r9
  subq $136, %rsp
  .cfi_adjust_cfa_offset 136
  movups %xmm0, (%rsp)
  movups %xmm1, 16(%rsp)
  movups %xmm2, 32(%rsp)
  movups %xmm3, 48(%rsp)
  movups %xmm4, 64(%rsp)
  movups %xmm5, 80(%rsp)
  movups %xmm6, 96(%rsp)
  movups %xmm7, 112(%rsp)
  movl 192(%rsp), %edi
  call nccltune_sendrecv_resolve
  movq %rax, %r11
  movups (%rsp), %xmm0
  movups 16(%rsp), %xmm1
  movups 32(%rsp), %xmm2
  movups 48(%rsp), %xmm3
  movups 64(%rsp), %xmm4
  movups 80(%rsp), %xmm5
  movups 96(%rsp), %xmm6
  movups 112(%rsp), %xmm7
  addq $136, %rsp
  .cfi_adjust_cfa_offset -136
  RESTORE %r9
  RESTORE %r8
  RESTORE %rcx
  RESTORE %rdx
  RESTORE %rsi
  RESTORE %rdi
  RESTORE %rax
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  jmp *%r11
  .cfi_endproc

#elif defined(__aarch64__)

  .macro TRAMPOLINE name
  .p2align 5
  .ascii "nccltune" /* the mark of a trampoline: see IsTrampoline in symbols.h */
  .globl \name
  .type \name, %function
\name:
  .cfi_startproc
  adrp x16, nccltune_sendrecv_table+8*index
  add x16, x16, :lo12:nccltune_sendrecv_table+8*index
  ldar x16, [x16] /* a load-acquire: pairs with the store of the target */
  br x16
  .cfi_endproc
  .size \name, .-\name
  .set index, index+1
  .endm

  .macro FIRST name
first.\name:
  .cfi_startproc
  mov w17, #index
  b resolve
  .cfi_endproc
  .set index, index+1
  .endm

  .text
resolve:
  .cfi_startproc
  stp x29, x30, [sp, #-224]!
  .cfi_def_cfa_offset 224
  .cfi_offset 29, -224
  .cfi_offset 30, -216
  mov x29, sp
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  str x8, [sp, #80]
  stp q0, q1, [sp, #96]
  stp q2, q3, [sp, #128]
  stp q4, q5, [sp, #160]
  stp q6, q7, [sp, #192]
  mov w0, w17
  bl nccltune_sendrecv_resolve
  mov x16, x0
  ldp x0, x1, [sp, #16]
  ldp x2, x3, [sp, #32]
  ldp x4, x5, [sp, #48]
  ldp x6, x7, [sp, #64]
  ldr x8, [sp, #80]
  ldp q0, q1, [sp, #96]
  ldp q2, q3, [sp, #128]
  ldp q4, q5, [sp, #160]
  ldp q6, q7, [sp, #192]
  ldp x29, x30, [sp], #224
  .cfi_restore 29
  .cfi_restore 30
  .cfi_def_cfa_offset 0
  br x16
  .cfi_endproc

#else
#error "written for x86-64 and aarch64"
#endif

  .hidden nccltune_sendrecv_resolve

  .text
#define SYMBOL(name, returns) TRAMPOLINE name
  .set index, 0
#include "symbols.inc"
#undef SYMBOL

#define SYMBOL(name, returns) FIRST name
  .set index, 0
#include "symbols.inc"
#undef SYMBOL

  .data
  .p2align 3
  .hidden nccltune_sendrecv_table
  .globl nccltune_sendrecv_table
  .type nccltune_sendrecv_table, %object
nccltune_sendrecv_table:
#define SYMBOL(name, returns) .dc.a first.name
#include "symbols.inc"
#undef SYMBOL
  .size nccltune_sendrecv_table, .-nccltune_sendrecv_table

  .section .note.GNU-stack,"",%progbits
