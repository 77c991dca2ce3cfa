/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BASE_POLLER_H
#define TUTTI_BASE_POLLER_H

/* The one place where threads of an engine sleep. A poller waits for sources (words, descriptors, both) until one fires
 * or until a time of the engine's clock. NULL is the system's: futexes for words, poll for descriptors, io_uring for
 * both; where the kernel has not got that (before 6.7, or forbidden) it looks at the words in turns of a millisecond.
 * Tests and simulators put their own in its place, together with a clock of their own. Any thread; nothing is
 * allocated.
 *
 *     struct tutti_sources sources;
 *     tutti_sources_init(&sources);
 *     tutti_sources_add_word(&sources, &word, 0);
 *     tutti_sources_until(&sources, tutti_clock_deadline(clock, TUTTI_NS_PER_S));
 *     tutti_poller_wait(poller, &sources);               whoever changes the word from 0 also calls tutti_futex_wake
 */

#include "base/source.h"

struct tutti_poller {
    /* Returns when a source has fired, at sources->due_ns, or for no reason. */
    void (*wait)(struct tutti_poller *poller, const struct tutti_sources *sources);
};

/* uring.c: until a word or a descriptor of the sources fires, or until then. False: this kernel can not. */
bool tutti_uring_wait(const struct tutti_sources *sources, uint64_t due_ns);

void tutti_poller_wait(struct tutti_poller *poller, const struct tutti_sources *sources);
/* On one word. */
void tutti_poller_wait_word(struct tutti_poller *poller, _Atomic uint32_t *word, uint32_t expected, uint64_t due_ns);

#endif
