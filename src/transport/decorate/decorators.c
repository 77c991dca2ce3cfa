/* SPDX-License-Identifier: BSD-3-Clause */
/* Decorators by name: how a list such as "trace,fault" becomes a stack. The list of those there are is in open.h. */

#include "base/config.h"
#include "transport/decorate/decorate.h"
#include "transport/open.h"

#include <stdio.h>
#include <string.h>

enum { NAME_MAX_BYTES = 16, STACK_MAX = 8 };

static const struct {
    const char *name;
    enum tutti_status (*open)(struct tutti_transport *inner, const struct tutti_decorator_options *options,
                              struct tutti_transport **out);
} decorators[] = {
#define TUTTI_DECORATOR_ROW(name, help) {#name, tutti_##name##_open},
    TUTTI_DECORATORS(TUTTI_DECORATOR_ROW)
#undef TUTTI_DECORATOR_ROW
};

static enum tutti_status unknown_decorator(const char *name)
{
    const char *names[TUTTI_ARRAY_LEN(decorators)];
    char all[128] = "";
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(decorators); i++) {
        names[i] = decorators[i].name;
        snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i > 0 ? ", " : "", names[i]);
    }
    const char *near = tutti_nearest(name, names, TUTTI_ARRAY_LEN(names));
    return tutti_fail(TUTTI_ERR_ARGUMENT, "option decorators: there is no '%s'; %s%s", name,
                      near ? "did you mean " : "there are ", near ? near : all);
}

/* The rows that a list names, outermost first. */
static enum tutti_status list_parse(const char *list, size_t rows[STACK_MAX], size_t *n)
{
    *n = 0;
    for (const char *at = list; *at;) {
        char name[NAME_MAX_BYTES];
        const size_t length = strcspn(at, ",");
        if (length == 0 || (at[length] == ',' && at[length + 1] == '\0'))
            return tutti_fail(TUTTI_ERR_ARGUMENT, "option decorators: a name is missing beside a comma in '%.64s'",
                              list);
        snprintf(name, sizeof(name), "%.*s", (int)(length < sizeof(name) ? length : sizeof(name) - 1), at);
        size_t row = 0;
        while (row < TUTTI_ARRAY_LEN(decorators) && strcmp(name, decorators[row].name) != 0) row++;
        if (row == TUTTI_ARRAY_LEN(decorators)) return unknown_decorator(name);
        if (*n == STACK_MAX)
            return tutti_fail(TUTTI_ERR_ARGUMENT,
                              "option decorators: at most %d may be stacked, but the list is '%.128s'", STACK_MAX,
                              list);
        rows[(*n)++] = row;
        at += length;
        if (*at == ',') at++;
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
