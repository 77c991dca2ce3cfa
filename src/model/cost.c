/* SPDX-License-Identifier: BSD-3-Clause */

/* From a load to a time. Ranks that have a CPU each work side by side: the longest chain of messages or the work of the
 * busiest rank decides, whichever is longer. Where ranks outnumber CPUs the work of all of them is shared by those, and
 * each wait is a sleep. */

#include "model/cost.h"
#include "model/costs.h"

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Times of a byte: into a ring, out of it, folded as it comes out, folded afterwards. Longer calls also bring it into
 * the own cache, long ones from memory or back. */
struct rates {
    double in, out, early, late;
};

/* What a byte takes longer because it is not in the own cache. The busiest rank touches what it sends and receives:
 * from three quarters of that cache on more and more of it is elsewhere when its turn comes. */
static double away_ns(const struct tutti_facts *facts, double touched)
{
    const struct tutti_machine *m = &facts->machine;
    double share = touched / ((double)m->own_kib * 1024) - 0.75;
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    return share * larger(1 / (double)m->mid_gbs - 1 / (double)m->copy_gbs, 0);
}

static struct rates rates_of(const struct tutti_facts *facts, const struct tutti_load *load)
{
    const struct tutti_machine *m = &facts->machine;
    double p = facts->shape.size, fold = 1 / (double)m->fold_gbs;
    double on_a_cpu = facts->crowded && facts->n_cpus ? larger(p / facts->n_cpus, 1) : 1;
    /* Between ranks of one CPU bytes stay in its cache. */
    double near = facts->link == TUTTI_LINK_HOST && p > 1 ? (on_a_cpu - 1) / (p - 1) : 0;
    double half_way = near / (double)m->copy_gbs + (1 - near) * 0.5 / (double)m->links[facts->link].ring_gbs;
    double out = half_way * (double)m->pull_gbs / tutti_machine_pull(m, p);
    /* What comes by a socket is copied out of the kernel before it is folded. */
    struct rates rates = {half_way, out, facts->link == TUTTI_LINK_NET ? out + fold : larger(out, fold), fold};
    double touched = on_a_cpu * (load->sent + load->received), copy = away_ns(facts, touched);
    double in = copy, fold_more = 1.5 * copy; /* a copy reads a byte and writes one, a fold reads two */
    /* What all ranks send stands for the memory that they touch: it is read once and written once. */
    if (2 * load->all_bytes > (double)m->cache_kib * 1024) {
        double half = 0.5 / tutti_machine_memory(m, p);
        in = larger(in, half), copy = larger(copy, 2 * half); /* here, what is overwritten is read as well */
        fold_more = larger(fold_more, 2 * half);
    }
    /* Memory is taken to be in small pages: a packet goes from one, or to one, a fold is of two. */
    double walk =
        touched > COST_ENGINE_PAGES_CACHED * COST_ENGINE_PAGE_BYTES ? (double)m->walk_ns / COST_ENGINE_PAGE_BYTES : 0;
    rates.in += in + walk;
    rates.out += copy + walk;
    rates.early += fold_more + 2 * walk;
    rates.late += fold_more + 2 * walk;
    return rates;
}

static double bytes_ns(const struct rates *r, double sent, double received, double folded, double early)
{
    return sent * r->in + (received - early) * r->out + early * r->early + (folded - early) * r->late;
}

double tutti_cost_ns(const struct tutti_facts *facts, const struct tutti_load *load)
{
    const struct tutti_machine *m = &facts->machine;
    double eager = facts->eager_bytes ? (double)facts->eager_bytes : COST_ENGINE_EAGER_BYTES;
    double slice = facts->slice_bytes ? (double)facts->slice_bytes : COST_ENGINE_SLICE_BYTES;
    const struct rates rates = rates_of(facts, load);
    double pieces = larger(load->largest / slice, 1); /* that a message is cut into, each a message of its own */
    const struct tutti_link *link = &m->links[facts->link];
    double line = link->line_ns, message = link->message_ns, waits = load->waits;
    /* Long messages wait until the receiver asks for them. */
    if (load->largest > eager) line *= 2, message *= 1.5, waits *= 2;
    /* Only the first slice of a long message is waited for: the others follow it. */
    double chain = load->chain / pieces * (rates.in + rates.out), copied = load->copied / (double)m->copy_gbs;
    double busy = load->messages * pieces * message / 2 + copied +
                  bytes_ns(&rates, load->sent, load->received, load->folded, load->early);
    if (!facts->crowded) return m->call_ns + larger(load->hops * (line + message) + chain, busy + line);
    /* A rank that waits for a socket finds it ready when its turn comes again, more often than it is woken. */
    double n_cpus = facts->n_cpus ? facts->n_cpus : 1,
           wait = (double)(facts->link == TUTTI_LINK_NET ? m->yield_ns : m->wake_ns);
    double work = waits * wait + load->all_messages * pieces * message +
                  bytes_ns(&rates, load->all_bytes, load->all_bytes, load->all_folded, load->all_early) +
                  facts->shape.size * ((double)m->call_ns + copied);
    double shared = facts->link == TUTTI_LINK_NET ? larger(work / n_cpus, busy) : work / n_cpus;
    return m->call_ns + larger(load->hops * (wait + message) + chain, shared);
}

double tutti_cost_of_levels_ns(const struct tutti_facts *facts, const struct tutti_load *near,
                               const struct tutti_load *far)
{
    struct tutti_facts within = *facts;
    within.link = TUTTI_LINK_HOST;
    return tutti_cost_ns(&within, near) + tutti_cost_ns(facts, far) +
           near->calls * (double)facts->machine.links[TUTTI_LINK_HOST].message_ns * COST_ENGINE_CALLED +
           far->beside * (double)facts->machine.links[TUTTI_LINK_NET].message_ns * COST_ENGINE_BESIDE;
}
