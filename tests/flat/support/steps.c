/* SPDX-License-Identifier: BSD-3-Clause */
/* The wrapped functions of the back end flat: what a test does between steps, and the planted faults. */
#include "steps.h"

#include "backend/flat/flat.h"

void (*_Atomic steps_between)(void);
enum steps_flaw steps_flaw;

static void between(void)
{
    void (*function)(void) = atomic_load_explicit(&steps_between, memory_order_relaxed);
    if (function) function();
}

/* WRAP(name, (parameters), (arguments)): a function that returns nothing. */
#define WRAP(name, parameters, arguments)                                                                              \
    void __real_##name parameters;                                                                                     \
    void __wrap_##name parameters;                                                                                     \
    void __wrap_##name parameters                                                                                      \
    {                                                                                                                  \
        between();                                                                                                     \
        __real_##name arguments;                                                                                       \
        between();                                                                                                     \
    }
WRAP(flat_publish, (struct flat_op * op, _Atomic uint64_t *word, uint64_t value), (op, word, value))
WRAP(flat_copy, (void *dst, const void *src, size_t bytes, bool past), (dst, src, bytes, past))
WRAP(flat_take, (const struct flat_op *op, void *dst, const void *src, size_t bytes), (op, dst, src, bytes))
WRAP(flat_fold, (const struct flat_op *op, void *dst, const void *left, const void *right, size_t bytes),
     (op, dst, left, right, bytes))
WRAP(flat_fold_all, (const struct flat_op *op, const struct flat_folding *what, size_t bytes), (op, what, bytes))
WRAP(flat_lines_put, (struct flat_op * op, uint32_t level, const unsigned char *data, size_t bytes),
     (op, level, data, bytes))
WRAP(flat_lines_part,
     (const struct flat_op *op, uint32_t peer, uint32_t level, size_t at, size_t bytes, unsigned char *out),
     (op, peer, level, at, bytes, out))

/* WAIT(name, parameters, arguments, flaw): one that is true when it need not wait. */
#define WAIT(name, parameters, arguments, flaw)                                                                        \
    bool __real_##name parameters;                                                                                     \
    bool __wrap_##name parameters;                                                                                     \
    bool __wrap_##name parameters                                                                                      \
    {                                                                                                                  \
        between();                                                                                                     \
        return (flaw) || __real_##name arguments;                                                                      \
    }
WAIT(flat_room, (struct flat_op * op), (op), steps_flaw == FLAW_ROOM)
WAIT(flat_round_room, (struct flat_op * op, uint64_t round), (op, round), steps_flaw == FLAW_ROUND_ROOM)
WAIT(flat_left, (struct flat_op * op), (op), steps_flaw == FLAW_LEFT)
WAIT(flat_lines_there, (struct flat_op * op, uint32_t peer, uint32_t level), (op, peer, level), false)

void __real_flat_has_read(struct flat_op *op, uint64_t n);
void __wrap_flat_has_read(struct flat_op *op, uint64_t n);
void __wrap_flat_has_read(struct flat_op *op, uint64_t n)
{
    between();
    __real_flat_has_read(op, steps_flaw == FLAW_READ && n < op->n_rounds ? n + 1 : n);
    between();
}

void __real_flat_stage(struct flat_op *op);
void __wrap_flat_stage(struct flat_op *op);
void __wrap_flat_stage(struct flat_op *op)
{
    between();
    if (steps_flaw == FLAW_STAGED && op->staged + 1 < op->n_rounds)
        atomic_store(&flat_post_of(op, op->inst->me)->in, op->staged + 2);
    between();
    __real_flat_stage(op);
    between();
}

/* STEP(name, parameters, arguments): a function that says how it went. */
#define STEP(name, parameters, arguments)                                                                              \
    enum tutti_advance __real_##name parameters;                                                                       \
    enum tutti_advance __wrap_##name parameters;                                                                       \
    enum tutti_advance __wrap_##name parameters                                                                        \
    {                                                                                                                  \
        between();                                                                                                     \
        enum tutti_advance run = __real_##name arguments;                                                              \
        between();                                                                                                     \
        return run;                                                                                                    \
    }
STEP(flat_attach_read, (struct flat_op * op, uint32_t peer, void *here, size_t at, size_t bytes),
     (op, peer, here, at, bytes))
STEP(flat_attach_write, (struct flat_op * op, uint32_t peer, const void *here, size_t at, size_t bytes),
     (op, peer, here, at, bytes))

enum tutti_advance __real_flat_meet(struct flat_op *op);
enum tutti_advance __wrap_flat_meet(struct flat_op *op);
enum tutti_advance __wrap_flat_meet(struct flat_op *op)
{
    between();
    return steps_flaw == FLAW_MEET ? TUTTI_RUN_DONE : __real_flat_meet(op);
}
