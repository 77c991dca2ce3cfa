/* SPDX-License-Identifier: BSD-3-Clause */
/* User-defined operations: a table of the context; a handle is TUTTI_N_OPS and the place in it. Calls copy the entry
 * when they start, so that the table may move. */
#include "comm/object/comm.h"

#include <limits.h>
#include <string.h>

/* A free place, or SIZE_MAX when memory is out. Under the context's lock. */
static size_t op_place(struct tutti_context *context)
{
    for (size_t i = 0; i < context->n_ops; i++)
        if (!context->ops[i].function) return i;
    size_t n = context->n_ops ? 2 * context->n_ops : 8;
    if (n > INT_MAX / 2) return SIZE_MAX;
    struct tutti_user_op *ops = tutti_alloc_array(n, sizeof(*ops));
    if (!ops) return SIZE_MAX;
    if (context->n_ops) memcpy(ops, context->ops, context->n_ops * sizeof(*ops));
    tutti_free(context->ops);
    size_t place = context->n_ops;
    context->ops = ops;
    context->n_ops = n;
    return place;
}

enum tutti_status tutti_op_create(struct tutti_context *context, tutti_op_function function, void *arg, bool commutes,
                                  enum tutti_op *out)
{
    if (!context) return tutti_fail(TUTTI_ERR_ARGUMENT, "op_create: context is NULL");
    TUTTI_TRY(tutti_context_check(context, "op_create"));
    if (!function) return tutti_fail(TUTTI_ERR_ARGUMENT, "op_create: function is NULL");
    if (!out) return tutti_fail(TUTTI_ERR_ARGUMENT, "op_create: out is NULL");
    pthread_mutex_lock(&context->lock);
    size_t place = op_place(context);
    if (place != SIZE_MAX)
        context->ops[place] = (struct tutti_user_op){.function = function, .arg = arg, .commutes = commutes};
    pthread_mutex_unlock(&context->lock);
    if (place == SIZE_MAX) return tutti_fail(TUTTI_ERR_MEMORY, "op_create: out of memory");
    *out = (enum tutti_op)((int)TUTTI_N_OPS + (int)place);
    return TUTTI_OK;
}

bool tutti_context_find_op(struct tutti_context *context, enum tutti_op op, struct tutti_user_op *out)
{
    if ((int)op < (int)TUTTI_N_OPS) return false;
    size_t place = (size_t)((int)op - (int)TUTTI_N_OPS);
    pthread_mutex_lock(&context->lock);
    bool found = place < context->n_ops && context->ops[place].function;
    if (found) *out = context->ops[place];
    pthread_mutex_unlock(&context->lock);
    return found;
}

enum tutti_status tutti_op_destroy(struct tutti_context *context, enum tutti_op op)
{
    if (!context) return tutti_fail(TUTTI_ERR_ARGUMENT, "op_destroy: context is NULL");
    TUTTI_TRY(tutti_context_check(context, "op_destroy"));
    struct tutti_user_op found;
    if (!tutti_context_find_op(context, op, &found))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "op_destroy: %d is no user-defined operation of this context", (int)op);
    pthread_mutex_lock(&context->lock);
    context->ops[(int)op - (int)TUTTI_N_OPS].function = NULL;
    pthread_mutex_unlock(&context->lock);
    return TUTTI_OK;
}
