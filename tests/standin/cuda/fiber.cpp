/* SPDX-License-Identifier: BSD-3-Clause */
/* Fibers by a few instructions of assembler on x86-64 and aarch64, by ucontext elsewhere. A stack is 64 KiB of address
 * space of which a kernel's thread touches a page or two (the build refuses frames that are not well below it). */

#include "fiber.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sys/mman.h>
#include <vector>

namespace
{
const size_t stack_bytes = 64 << 10, stacks_at_once = 64;

std::mutex pool_lock;
auto &pool = *new std::vector<void *>; /* outlives the threads that run grids when the process ends */

void *take_stack()
{
    std::lock_guard<std::mutex> guard(pool_lock);
    if (pool.empty()) {
        void *made = mmap(nullptr, stack_bytes * stacks_at_once, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (made == MAP_FAILED) {
            perror("standin: stacks of fibers");
            abort();
        }
        for (size_t i = stacks_at_once; i > 0; i--) {
            void *stack = (char *)made + (i - 1) * stack_bytes;
            pool.push_back(stack);
        }
    }
    void *stack = pool.back();
    pool.pop_back();
    return stack;
}
} // namespace

void fiber_release(fiber *over)
{
    std::lock_guard<std::mutex> guard(pool_lock);
    pool.push_back(over->stack);
    over->stack = nullptr;
}

#if defined(__x86_64__)
asm(".text\n.p2align 4\n.hidden cuda_standin_switch\n.globl cuda_standin_switch\n"
    ".type cuda_standin_switch, @function\ncuda_standin_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
    ".size cuda_standin_switch, .-cuda_standin_switch\n"
    ".hidden cuda_standin_begin\n.globl cuda_standin_begin\n"
    ".type cuda_standin_begin, @function\ncuda_standin_begin:\n"
    "mov %r12, %rdi\ncall *%rbx\nud2\n"
    ".size cuda_standin_begin, .-cuda_standin_begin\n");
extern "C" void cuda_standin_switch(void **from, void *to);
extern "C" void cuda_standin_begin();

static void *first_frame(char *top, void (*entry)(void *arg), void *arg)
{
    void **frame = (void **)top - 7; /* r15 r14 r13 r12 rbx rbp and the address to return to; a call needs `top` */
    for (int i = 0; i < 7; i++) frame[i] = nullptr;
    frame[3] = arg;
    frame[4] = (void *)entry;
    frame[6] = (void *)cuda_standin_begin;
    return frame;
}
#define TUTTI_STANDIN_ASSEMBLER 1
#elif defined(__aarch64__)
asm(".text\n.p2align 4\n.hidden cuda_standin_switch\n.globl cuda_standin_switch\n"
    ".type cuda_standin_switch, %function\ncuda_standin_switch:\n"
    "sub sp, sp, #160\nstp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\n"
    "stp x25, x26, [sp, #48]\nstp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
    "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
    "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
    "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\n"
    "ldp x25, x26, [sp, #48]\nldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
    "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
    "add sp, sp, #160\nret\n"
    ".hidden cuda_standin_begin\n.globl cuda_standin_begin\n"
    ".type cuda_standin_begin, %function\ncuda_standin_begin:\n"
    "mov x0, x19\nblr x20\nbrk #0\n");
extern "C" void cuda_standin_switch(void **from, void *to);
extern "C" void cuda_standin_begin();

static void *first_frame(char *top, void (*entry)(void *arg), void *arg)
{
    void **frame = (void **)top - 20;
    for (int i = 0; i < 20; i++) frame[i] = nullptr;
    frame[0] = arg;
    frame[1] = (void *)entry;
    frame[11] = (void *)cuda_standin_begin;
    return frame;
}
#define TUTTI_STANDIN_ASSEMBLER 1
#endif

/* Tops of stacks are spread: at one distance they would all lie in the same sets of the caches. */
static char *top_of(void *stack)
{
    const uintptr_t colour = ((uintptr_t)stack / stack_bytes) % 31;
    return (char *)stack + stack_bytes - colour * 128;
}

#ifdef TUTTI_STANDIN_ASSEMBLER
void fiber_prepare(fiber *made, void (*entry)(void *arg), void *arg)
{
    made->stack = take_stack();
    made->sp = first_frame(top_of(made->stack), entry, arg);
}

void fiber_switch(fiber *from, fiber *to)
{
    cuda_standin_switch(&from->sp, to->sp);
}
#else
#include <ucontext.h>

static void begin(unsigned entry_high, unsigned entry_low, unsigned arg_high, unsigned arg_low)
{
    const uint64_t entry = (uint64_t)entry_high << 32 | entry_low, arg = (uint64_t)arg_high << 32 | arg_low;
    ((void (*)(void *))(uintptr_t)entry)((void *)(uintptr_t)arg);
}

/* The context lies at the top of the stack that it is of; of a thread's own stack, where it was left. */
void fiber_prepare(fiber *made, void (*entry)(void *arg), void *arg)
{
    made->stack = take_stack();
    char *top = top_of(made->stack) - sizeof(ucontext_t);
    ucontext_t *context = (ucontext_t *)((uintptr_t)top & ~(uintptr_t)63);
    getcontext(context);
    context->uc_stack.ss_sp = made->stack;
    context->uc_stack.ss_size = (size_t)((char *)context - (char *)made->stack);
    context->uc_link = nullptr;
    const uint64_t e = (uint64_t)(uintptr_t)entry, a = (uint64_t)(uintptr_t)arg;
    makecontext(context, (void (*)())begin, 4, (unsigned)(e >> 32), (unsigned)e, (unsigned)(a >> 32), (unsigned)a);
    made->sp = context;
}

void fiber_switch(fiber *from, fiber *to)
{
    ucontext_t here;
    from->sp = &here;
    swapcontext(&here, (ucontext_t *)to->sp);
}
#endif
