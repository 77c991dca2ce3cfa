/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BASE_SOURCE_H
#define TUTTI_BASE_SOURCE_H

/* What a thread that has nothing to do sleeps on; the poller (poller.h) does the sleeping, and no thread of the engine
 * sleeps elsewhere. Whoever may produce work (a wire, a runner) is asked before each sleep: it arms itself and adds its
 * sources. The thread then sleeps until one of them fires, or until `due_ns`. */

#include "base/base.h"

/* One thing that ends a sleep: a word, or a descriptor. Both stay valid until the sleep is over. */
struct tutti_source {
    _Atomic uint32_t *word; /* a futex: whoever changes it from `expected` also wakes it. NULL: a descriptor */
    uint32_t expected;
    int fd; /* for epoll: readable when there is something to do. -1: a word */
};

#define TUTTI_SOURCES_MAX 16 /* what one futex_waitv takes */
struct tutti_sources {
    struct tutti_source at[TUTTI_SOURCES_MAX];
    uint32_t n;
    bool crowded;    /* there was no room for one more: sleep no longer than a millisecond */
    uint64_t due_ns; /* by the context's clock: sleep no longer. TUTTI_NEVER */
};

static inline void tutti_sources_init(struct tutti_sources *sources)
{
    sources->n = 0, sources->crowded = false, sources->due_ns = TUTTI_NEVER;
}
static inline void tutti_sources_until(struct tutti_sources *sources, uint64_t due_ns)
{
    if (due_ns < sources->due_ns) sources->due_ns = due_ns;
}
static inline void tutti_sources_add(struct tutti_sources *sources, struct tutti_source source)
{
    if (sources->n < TUTTI_SOURCES_MAX)
        sources->at[sources->n++] = source;
    else
        sources->crowded = true;
}
static inline void tutti_sources_add_word(struct tutti_sources *sources, _Atomic uint32_t *word, uint32_t expected)
{
    tutti_sources_add(sources, (struct tutti_source){.word = word, .expected = expected, .fd = -1});
}
static inline void tutti_sources_add_fd(struct tutti_sources *sources, int fd)
{
    tutti_sources_add(sources, (struct tutti_source){.fd = fd});
}

#endif
