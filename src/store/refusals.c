/* SPDX-License-Identifier: BSD-3-Clause */

/* Connections that the store's server refused, by address: the first ones have a line of the log each, the others one
 * line a minute together. */

#include "store/store_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The row of an address; that of all others, when there are too many. */
static struct tutti_refusals_row *row_of(struct tutti_refusals *refusals, const char *host)
{
    struct tutti_refusals_row *row = NULL;
    for (size_t i = 0; i < TUTTI_REFUSALS_HOSTS; i++) {
        struct tutti_refusals_row *r = &refusals->rows[i];
        if (r->n_told > 0 && strcmp(r->host, host) == 0) return r;
        if (r->n_told == 0 && !row) row = r;
    }
    if (!row) row = &refusals->rows[TUTTI_REFUSALS_HOSTS], host = "other addresses";
    snprintf(row->host, sizeof row->host, "%s", host);
    return row;
}

void tutti_refusals_note(struct tutti_refusals *refusals, const char *host, const char *port, const char *why)
{
    struct tutti_refusals_row *row = row_of(refusals, host);
    if (row->n_told < TUTTI_REFUSALS_FIRST) {
        row->n_told++;
        tutti_log(TUTTI_LOG_WARN, "the store's server refused %s port %s: %s", host, port, why);
    } else {
        row->n_more++;
        snprintf(row->last, sizeof row->last, "%s", why);
    }
}

bool tutti_refusals_tell(struct tutti_refusals *refusals)
{
    bool any = false;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(refusals->rows); i++) {
        struct tutti_refusals_row *row = &refusals->rows[i];
        if (row->n_more == 0) {
            row->n_told = 0;
            continue;
        }
        tutti_log(TUTTI_LOG_WARN, "the store's server refused %" PRIu32 " more from %s; the last one: %s", row->n_more,
                  row->host, row->last);
        row->n_more = 0;
        any = true;
    }
    return any;
}
