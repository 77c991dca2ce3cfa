/* SPDX-License-Identifier: BSD-3-Clause */
/* The furthest step, as a lighthouse shows it: tutti's by /metrics, torchft's by its page. */
#include "chaos.h"
#include "tools/tutti/http.h"

#include <stdlib.h>
#include <string.h>

#define WAIT_MS 200

static const struct {
    const char *path, *before; /* the number stands behind this; the greatest counts */
} pages[] = {{"/metrics", "\ntutti_lighthouse_max_step{job=\"default\"}"}, {"/status", "Step: "}};

static bool greatest(const char *text, const char *before, int64_t *out)
{
    bool found = false;

    for (const char *at = text; (at = strstr(at, before)) != NULL;) {
        char *end;
        at += strlen(before);
        const long long value = strtoll(at, &end, 10);
        if (end == at) continue;
        if (!found || value > *out) *out = value;
        found = true;
    }
    return found;
}

static bool ask_one(const char *address, const char *token, int64_t *step)
{
    struct tutti_http_where where;
    bool found = false;

    for (size_t i = 0; i < TUTTI_ARRAY_LEN(pages) && !found && tutti_http_where(address, &where); i++) {
        char *answer = tutti_http_get(&where, pages[i].path, token, WAIT_MS);
        if (!answer) return false;
        found = tutti_http_is_ok(answer) && greatest(answer, pages[i].before, step);
        free(answer);
    }
    return found;
}

bool chaos_ask_step(const char *addresses, const char *token, int64_t *step)
{
    for (const char *one = addresses; one; one = strchr(one, ',') ? strchr(one, ',') + 1 : NULL)
        if (ask_one(one, token, step)) return true;
    return false;
}
