/* SPDX-License-Identifier: BSD-3-Clause */

/* The few patterns of messages that all algorithms are made of, as formulas. Sizes that are no power of the radix round
 * up, so these are upper bounds there. */

#include "model/pattern.h"

struct tutti_load load_both(struct tutti_load a, struct tutti_load b)
{
    return (struct tutti_load){
        .hops = a.hops + b.hops,
        .chain = a.chain + b.chain,
        .messages = a.messages + b.messages,
        .sent = a.sent + b.sent,
        .received = a.received + b.received,
        .folded = a.folded + b.folded,
        .early = a.early + b.early,
        .copied = a.copied + b.copied,
        .waits = a.waits + b.waits,
        .all_messages = a.all_messages + b.all_messages,
        .all_bytes = a.all_bytes + b.all_bytes,
        .all_folded = a.all_folded + b.all_folded,
        .all_early = a.all_early + b.all_early,
        .largest = a.largest > b.largest ? a.largest : b.largest,
    };
}

struct tutti_load load_folding(struct tutti_load load)
{
    load.folded = load.early = load.received;
    load.all_folded = load.all_early = load.all_bytes;
    return load;
}

struct tutti_load load_folding_late(struct tutti_load load)
{
    load.folded = load.received;
    load.all_folded = load.all_bytes;
    return load;
}

struct tutti_load load_exchange(double p, double peers, double bytes)
{
    return (struct tutti_load){.hops = peers > 0,
                               .chain = peers > 0 ? bytes : 0,
                               .messages = 2 * peers,
                               .sent = peers * bytes,
                               .received = peers * bytes,
                               .waits = peers > 0 ? p : 0,
                               .all_messages = p * peers,
                               .all_bytes = p * peers * bytes,
                               .largest = bytes};
}

struct tutti_load load_rounds(double p, double rounds, double bytes, double largest)
{
    return (struct tutti_load){.hops = rounds,
                               .chain = bytes,
                               .messages = 2 * rounds,
                               .sent = bytes,
                               .received = bytes,
                               .waits = p * rounds,
                               .all_messages = p * rounds,
                               .all_bytes = p * bytes,
                               .largest = largest};
}

struct tutti_load load_chain(double p, double bytes)
{
    return (struct tutti_load){.hops = p - 1,
                               .chain = (p - 1) * bytes,
                               .messages = p > 2 ? 2 : 1,
                               .sent = p > 2 ? bytes : 0,
                               .received = bytes,
                               .waits = p - 1,
                               .all_messages = p - 1,
                               .all_bytes = (p - 1) * bytes,
                               .largest = bytes};
}

struct tutti_load load_up(const struct ask *q, double r, double d)
{
    double children = r == q->r && d == q->d ? q->children : d * (r - 1);
    return (struct tutti_load){.hops = d,
                               .chain = d * q->b,
                               .messages = children,
                               .received = children * q->b,
                               .waits = (q->p - 1) / (r - 1),
                               .all_messages = q->p - 1,
                               .all_bytes = (q->p - 1) * q->b,
                               .largest = q->b};
}

struct tutti_load load_down(const struct ask *q, double r, double d)
{
    struct tutti_load load = load_up(q, r, d);
    load.sent = load.received;
    load.received = 0;
    load.waits = q->p - 1;
    return load;
}

struct tutti_load load_of_blocks(const struct ask *q, struct tutti_load load, double r)
{
    double others = (q->p - 1) * q->b;
    if (load.sent > 0) load.sent = others;
    if (load.received > 0) load.received = others;
    load.chain = others;
    load.all_bytes = q->p * q->d * q->b * (r - 1) / r;
    load.largest = q->p * q->b / r;
    return load;
}

struct tutti_load load_star(const struct ask *q, bool to_root)
{
    double others = (q->p - 1) * q->b;
    return (struct tutti_load){.hops = q->p > 1,
                               .chain = q->b,
                               .messages = q->p - 1,
                               .sent = to_root ? 0 : others,
                               .received = to_root ? others : 0,
                               .waits = to_root ? 1 : q->p - 1,
                               .all_messages = q->p - 1,
                               .all_bytes = others,
                               .largest = q->b};
}

struct tutti_load load_double_pass(const struct ask *q, bool to_root)
{
    double hops = q->p > 2 ? q->log + 1 : 1;
    return (struct tutti_load){.hops = hops,
                               .chain = hops * q->b / 2,
                               .messages = q->p > 2 ? 4 : 2,
                               .sent = q->p > 2 ? q->b : 0,
                               .received = q->b,
                               .waits = to_root ? q->p : 2 * (q->p - 1),
                               .all_messages = 2 * (q->p - 1),
                               .all_bytes = (q->p - 1) * q->b,
                               .largest = q->b / 2};
}
