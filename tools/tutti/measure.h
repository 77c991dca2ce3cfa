/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_MEASURE_H
#define TUTTI_TOOLS_MEASURE_H

/* What `tutti bench` and `tutti tune` measure alike. */

#include "base/base.h"

#include <stdatomic.h>

double tutti_median(double *values, size_t n); /* sorts them; n > 0 */

/* ---- a number that two ranks pass to and fro: in zeroed memory that both map ---- */
struct tutti_baton {
    _Alignas(128) _Atomic uint64_t turn;
    _Alignas(128) _Atomic uint32_t futex;
};
enum tutti_waiting { TUTTI_SPIN, TUTTI_YIELD, TUTTI_SLEEP };
struct tutti_relay {
    enum tutti_waiting how;
    uint32_t batches, hops; /* per batch */
    uint64_t limit_ns;      /* for all of it: with more ranks than cores they may never run at once */
};
/* By ranks 0 and 1: ns of one way in the best batch, since a busy machine takes one of them off its core now and then;
 * 0: no batch came to its end. */
double tutti_relay_ns(struct tutti_baton *baton, uint32_t rank, const struct tutti_relay *relay);

#endif
