/* SPDX-License-Identifier: BSD-3-Clause */
/* Decorators by name: how a list such as "trace,fault" becomes a stack. The list of those there are is in open.h. */

#include "transport/decorate/decorate.h"
#include "transport/open.h"

#include <string.h>

enum { STACK_MAX = 8 };

static const struct {
    const char *name;
    enum tutti_status (*open)(struct tutti_transport *inner, const struct tutti_decorator_options *options,
                              struct tutti_transport **out);
} decorators[] = {
#define TUTTI_DECORATOR_ROW(name, help) {#name, tutti_##name##_open},
    TUTTI_DECORATORS(TUTTI_DECORATOR_ROW)
#undef TUTTI_DECORATOR_ROW
};

/* The rows that a list names, outermost first. */
static enum tutti_status list_parse(const char *list, size_t rows[STACK_MAX], size_t *n)
{
#define TUTTI_DECORATOR_NAME(name, help) " " #name
    static const char names[] = TUTTI_DECORATORS(TUTTI_DECORATOR_NAME);
#undef TUTTI_DECORATOR_NAME
    *n = 0;
    for (const char *at = list; *list; at++) {
        const size_t length = strcspn(at, ",");
        size_t row = 0;
        while (row < TUTTI_ARRAY_LEN(decorators) &&
               !(strlen(decorators[row].name) == length && memcmp(decorators[row].name, at, length) == 0))
            row++;
        if (row == TUTTI_ARRAY_LEN(decorators) || *n == STACK_MAX)
            return tutti_fail(TUTTI_ERR_ARGUMENT,
                              "option decorators: '%.128s' is no list of at most %d, with commas, of:%s", list,
                              STACK_MAX, names);
        rows[(*n)++] = row;
        at += length;
        if (*at == '\0') break;
    }
    return TUTTI_OK;
}

enum tutti_status tutti_transport_decorate(struct tutti_transport *inner, const char *list,
                                           const struct tutti_decorator_options *options, struct tutti_transport **out)
{
    size_t rows[STACK_MAX], n;
    TUTTI_TRY(list_parse(list ? list : "", rows, &n));
    struct tutti_transport *top = inner;
    enum tutti_status status;
    for (size_t i = n; i-- > 0;) TUTTI_TRY_GOTO(status, decorators[rows[i]].open(top, options, &top), err_undecorate);
    *out = top;
    return TUTTI_OK;

err_undecorate: /* the caller keeps the innermost */
    while (top != inner) {
        struct tutti_decorator *d = (struct tutti_decorator *)(void *)top;
        top = d->inner;
        d->inner = NULL;
        d->base.ops->close(&d->base);
    }
    return status;
}
