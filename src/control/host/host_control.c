/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening and closing the control of one host. */

#include "control/host/asks.h"

#include <stdatomic.h>

static uint64_t lives_bytes(uint32_t n)
{
    return n * sizeof(struct tutti_host_life);
}

static uint64_t boards_bytes(uint32_t n)
{
    return (uint64_t)n * TUTTI_BOARD_ALL * sizeof(struct tutti_board_row);
}

static uint64_t failures_bytes(uint32_t n)
{
    return n * sizeof(struct tutti_failure_row);
}

static uint64_t asks_bytes(uint32_t n)
{
    return n * sizeof(struct tutti_asks);
}

uint64_t tutti_host_control_bytes(uint32_t n)
{
    return lives_bytes(n) + boards_bytes(n) + failures_bytes(n) + asks_bytes(n) + sizeof(struct tutti_claims);
}

static void host_close(struct tutti_control *c)
{
    struct tutti_host_control *host = tutti_host_control_of(c);
    tutti_host_life_fini(host);
    tutti_unmap(host->known, c->n * sizeof(*host->known));
    tutti_segment_release(host->segment);
    tutti_free(host);
}

static const struct tutti_control_ops host_ops = {
    .size = sizeof(host_ops),
    .close = host_close,
    .life = tutti_host_life,
    .publish = tutti_host_publish,
    .peek = tutti_host_peek,
    .raise = tutti_host_raise,
    .failure = tutti_host_failure,
    .counter = tutti_host_counter,
    .serve = tutti_asks_serve,
};

static void parts_find(struct tutti_host_control *host, char *base, uint32_t n)
{
    host->lives = (struct tutti_host_life *)(void *)base;
    host->boards = (struct tutti_board_row *)(void *)(base += lives_bytes(n));
    host->failures = (struct tutti_failure_row *)(void *)(base += boards_bytes(n));
    host->asks = (struct tutti_asks *)(void *)(base += failures_bytes(n));
    host->claims = (struct tutti_claims *)(void *)(base + asks_bytes(n));
}

static enum tutti_status control_make(struct tutti_segment *segment, uint32_t me, const struct tutti_control_ops *ops,
                                      struct tutti_host_control **out)
{
    uint64_t bytes;
    char *base = tutti_segment_control(segment, &bytes);
    if (bytes != tutti_host_control_bytes(segment->n))
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the segment has %llu bytes for control, this build expects %llu",
                          (unsigned long long)bytes, (unsigned long long)tutti_host_control_bytes(segment->n));
    struct tutti_host_control *host = tutti_alloc(sizeof(*host));
    if (!host) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for control");
    parts_find(host, base, segment->n);
    host->segment = segment;
    host->base = (struct tutti_control){
        .ops = ops, .name = "host", .n = segment->n, .me = me, .answers_at_once = true, .alarm = &host->claims->hint};
    host->known = tutti_map_lazy(segment->n * sizeof(*host->known));
    if (!host->known) {
        tutti_free(host);
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for what control knows of %u peers", segment->n);
    }
    *out = host;
    return TUTTI_OK;
}

enum tutti_status tutti_host_control_open(struct tutti_segment *segment, uint32_t me, struct tutti_control **out)
{
    struct tutti_host_control *host = NULL;
    if (me >= segment->n)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "member %u does not exist: the segment has %u", me, segment->n);
    TUTTI_TRY(control_make(segment, me, &host_ops, &host));
    const enum tutti_status status = tutti_host_life_init(host);
    if (status < 0) {
        tutti_unmap(host->known, segment->n * sizeof(*host->known));
        tutti_free(host);
        return status;
    }
    *out = &host->base;
    return TUTTI_OK;
}

/* ---- for who is no member ---- */

static void observer_close(struct tutti_control *c)
{
    struct tutti_host_control *host = tutti_host_control_of(c);
    tutti_host_life_forget(host);
    tutti_unmap(host->known, c->n * sizeof(*host->known));
    tutti_segment_release(host->segment);
    tutti_free(host);
}

static void observer_publish(struct tutti_control *c, uint32_t slot, const struct tutti_board *board)
{
    (void)c, (void)slot, (void)board;
}

static void observer_raise(struct tutti_control *c, const struct tutti_failure *failure)
{
    (void)c, (void)failure;
}

static enum tutti_status observer_failure(struct tutti_control *c, struct tutti_failure *out)
{
    (void)c, (void)out;
    return TUTTI_AGAIN;
}

static const struct tutti_control_ops observer_ops = {
    .size = sizeof(observer_ops),
    .close = observer_close,
    .life = tutti_host_life,
    .publish = observer_publish,
    .peek = tutti_host_peek,
    .raise = observer_raise,
    .failure = observer_failure,
};

enum tutti_status tutti_host_control_observe(struct tutti_segment *segment, struct tutti_host_control **out)
{
    TUTTI_TRY(control_make(segment, UINT32_MAX, &observer_ops, out));
    tutti_host_life_look(*out);
    return TUTTI_OK;
}
