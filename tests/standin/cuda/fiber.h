/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_STANDIN_CUDA_FIBER_H
#define TUTTI_STANDIN_CUDA_FIBER_H

/* Fibers: stacks that one thread of the system switches among. Stacks are kept for the next grid. */

#include <cstddef>

struct fiber {
    void *sp = nullptr; /* the stack pointer of a fiber that is not running */
    void *stack = nullptr;
};

/* The fiber runs entry(arg) when it is switched to for the first time; entry must not return, but switch away for ever.
 */
void fiber_prepare(fiber *made, void (*entry)(void *arg), void *arg);
/* Saves the running fiber (or the thread's own stack) in `from` and goes on with `to`. */
void fiber_switch(fiber *from, fiber *to);
/* It runs no more; its stack serves others. */
void fiber_release(fiber *over);

#endif
