/* SPDX-License-Identifier: BSD-3-Clause */
/* Public call: deadlines that follow from one. */
#include "base/config.h"

#include <tutti/ft.h>

#include <stddef.h>

/* In the order in which they are derived: the share of another one, and no more than `most`. */
static const struct {
    size_t offset, of;
    uint64_t share, most_ns;
} rules[] = {
#define OF(field) offsetof(struct tutti_ft_timeouts, field)
    {OF(quorum_ns), OF(timeout_ns), 1, UINT64_MAX},
    {OF(connect_ns), OF(timeout_ns), 1, UINT64_MAX},
    {OF(join_ns), OF(quorum_ns), 2, UINT64_MAX},
    {OF(heartbeat_timeout_ns), OF(quorum_ns), 4, 5 * TUTTI_NS_PER_S},
    {OF(heartbeat_interval_ns), OF(heartbeat_timeout_ns), 10, 100 * TUTTI_NS_PER_MS},
    {OF(tick_ns), OF(join_ns), 10, 100 * TUTTI_NS_PER_MS},
};

/* The first has to be `times` shorter than the second at least. */
static const struct {
    size_t less, more;
    uint64_t times;
    const char *names[2], *why;
} orders[] = {
    {OF(timeout_ns),
     OF(quorum_ns),
     1,
     {"timeout_ns", "quorum_ns"},
     "a group that still waits for a call of the step before would miss the quorum"},
    {OF(join_ns),
     OF(quorum_ns),
     1,
     {"join_ns", "quorum_ns"},
     "groups would give up while the lighthouse still waits for others"},
    {OF(heartbeat_timeout_ns),
     OF(quorum_ns),
     1,
     {"heartbeat_timeout_ns", "quorum_ns"},
     "groups would give up before the lighthouse knows who is dead"},
    {OF(heartbeat_interval_ns),
     OF(heartbeat_timeout_ns),
     2,
     {"heartbeat_interval_ns", "heartbeat_timeout_ns"},
     "one late heartbeat, and the lighthouse takes a group for dead"},
    {OF(tick_ns), OF(quorum_ns), 1, {"tick_ns", "quorum_ns"}, "groups would give up between two looks"},
#undef OF
};

static uint64_t *field(struct tutti_ft_timeouts *timeouts, size_t offset)
{
    return (uint64_t *)(void *)((char *)timeouts + offset);
}

static enum tutti_status knob(uint64_t *timeout_ns)
{
    struct tutti_config config;

    if (*timeout_ns) return TUTTI_OK;
    TUTTI_TRY(tutti_config_init(&config, NULL, 0));
    *timeout_ns = config.number[TUTTI_OPT_ft_timeout];
    tutti_config_fini(&config);
    return TUTTI_OK;
}

enum tutti_status tutti_ft_timeouts_fill(struct tutti_ft_timeouts *timeouts)
{
    struct tutti_ft_timeouts made;

    if (!timeouts || timeouts->size != sizeof(*timeouts))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_timeouts_fill: %s: begin with TUTTI_FT_TIMEOUTS_INIT",
                          timeouts ? "size is wrong" : "timeouts is NULL");
    made = *timeouts;
    TUTTI_TRY(knob(&made.timeout_ns));
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(rules); i++) {
        uint64_t *at = field(&made, rules[i].offset), derived = *field(&made, rules[i].of) / rules[i].share;
        if (derived > rules[i].most_ns) derived = rules[i].most_ns;
        if (*at == 0) *at = derived ? derived : 1;
    }
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(orders); i++) {
        const uint64_t less = *field(&made, orders[i].less), more = *field(&made, orders[i].more);
        if (less > more / orders[i].times)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_timeouts_fill: %s (%llu ms) and %s (%llu ms): %s",
                              orders[i].names[0], tutti_says_ms(less), orders[i].names[1], tutti_says_ms(more),
                              orders[i].why);
    }
    *timeouts = made;
    return TUTTI_OK;
}
