/* SPDX-License-Identifier: BSD-3-Clause */

/* Sleeping on what the system has: futexes, futex_waitv, poll, io_uring. */

#include "base/poller.h"

#include <poll.h>
#include <stdatomic.h>

#define TURN_NS TUTTI_NS_PER_MS

struct split {
    _Atomic uint32_t *words[TUTTI_SOURCES_MAX];
    uint32_t expected[TUTTI_SOURCES_MAX];
    struct pollfd fds[TUTTI_SOURCES_MAX];
    uint32_t n_words, n_fds;
};

static void split(const struct tutti_sources *sources, struct split *out)
{
    out->n_words = out->n_fds = 0;
    for (uint32_t i = 0; i < sources->n; i++) {
        const struct tutti_source *source = &sources->at[i];
        if (source->word)
            out->words[out->n_words] = source->word, out->expected[out->n_words++] = source->expected;
        else
            out->fds[out->n_fds++] = (struct pollfd){.fd = source->fd, .events = POLLIN};
    }
}

static bool any_changed(const struct split *s)
{
    for (uint32_t i = 0; i < s->n_words; i++)
        if (atomic_load_explicit(s->words[i], memory_order_acquire) != s->expected[i]) return true;
    return false;
}

static void wait_descriptors(struct split *s, uint64_t due_ns)
{
    for (uint64_t now; !any_changed(s) && (now = tutti_now_ns()) < due_ns;) {
        uint64_t left = due_ns - now, most = s->n_words > 0 ? TURN_NS : TUTTI_NS_PER_S;
        uint64_t ns = left < most ? left : most;
        struct timespec turn = {.tv_sec = (time_t)(ns / TUTTI_NS_PER_S), .tv_nsec = (long)(ns % TUTTI_NS_PER_S)};
        if (ppoll(s->fds, s->n_fds, &turn, NULL) != 0) return;
    }
}

static void wait_system(const struct tutti_sources *sources)
{
    uint64_t due_ns = sources->due_ns, turn_ns = tutti_deadline_ns(TURN_NS);
    struct split s;

    if (sources->crowded && turn_ns < due_ns) due_ns = turn_ns;
    split(sources, &s);
    if (s.n_fds > 0 && s.n_words > 0 && tutti_uring_wait(sources, due_ns)) return;
    if (s.n_fds > 0)
        wait_descriptors(&s, due_ns);
    else if (s.n_words == 1)
        tutti_futex_wait(s.words[0], s.expected[0], due_ns);
    else if (s.n_words > 1)
        tutti_futex_wait_any(s.words, s.expected, s.n_words, due_ns);
    else
        tutti_sleep_ns(TURN_NS);
}

void tutti_poller_wait(struct tutti_poller *poller, const struct tutti_sources *sources)
{
    if (poller)
        poller->wait(poller, sources);
    else
        wait_system(sources);
}

void tutti_poller_wait_word(struct tutti_poller *poller, _Atomic uint32_t *word, uint32_t expected, uint64_t due_ns)
{
    if (!poller) {
        tutti_futex_wait(word, expected, due_ns);
        return;
    }
    struct tutti_sources sources;
    tutti_sources_init(&sources);
    tutti_sources_add_word(&sources, word, expected);
    tutti_sources_until(&sources, due_ns);
    poller->wait(poller, &sources);
}
