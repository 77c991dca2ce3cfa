/* SPDX-License-Identifier: BSD-3-Clause */
/* What calls hold on to until they are over. A call that is left under way (its Work is gone, or a signal ended the
 * wait) keeps it until the library says that the call is over, on its completion thread. */
#include "module.h"

#include <stdlib.h>

static struct borrow *unused; /* with the interpreter's lock */

struct borrow *borrow_take(void)
{
    struct borrow *borrow = unused;
    if (borrow)
        unused = borrow->next;
    else if (!(borrow = calloc(1, sizeof *borrow)))
        return PyErr_NoMemory(), NULL;
    borrow->next = NULL;
    return borrow;
}

static void give(struct borrow *borrow)
{
    PyObject **const held[] = {&borrow->label, &borrow->algorithm, &borrow->op, &borrow->owner};
    for (int32_t i = 0; i < borrow->n_views; i++) view_release(&borrow->views[i]);
    borrow->n_views = 0;
    for (size_t i = 0; i < sizeof held / sizeof held[0]; i++) {
        PyObject *object = *held[i];
        *held[i] = NULL;
        if (object) Py_DecRef(object);
    }
    free(borrow->tables);
    borrow->tables = NULL;
    borrow->n_tables = 0;
    borrow->next = unused;
    unused = borrow;
}

void borrow_give(struct borrow *borrow)
{
    while (borrow) {
        struct borrow *next = borrow->next;
        give(borrow);
        borrow = next;
    }
}

size_t *borrow_table(struct borrow *borrow, size_t n)
{
    enum { TABLES = 4 };
    if (!borrow->tables) borrow->tables = malloc(TABLES * n * sizeof *borrow->tables);
    if (!borrow->tables) return PyErr_NoMemory(), NULL;
    return borrow->tables + n * borrow->n_tables++;
}

/* On the completion thread. */
static void is_over(void *arg)
{
    PyGILState_STATE state = PyGILState_Ensure();
    borrow_give(arg);
    PyGILState_Release(state);
}

void borrow_leave(struct borrow *borrow, struct tutti_work *work)
{
    /* Where nobody can be told, the memory stays taken: that is better than to free it under the call. */
    LOCK_GIVE();
    if (borrow) (void)tutti_work_notify(work, is_over, borrow);
    tutti_work_free(work);
    LOCK_TAKE();
}
