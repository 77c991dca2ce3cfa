/* SPDX-License-Identifier: BSD-3-Clause */

/* From a load to a time. Ranks that have a CPU each work side by side: the longest chain of messages or the work of the
 * busiest rank decides, whichever is longer. Where ranks outnumber CPUs the work of all of them is shared by those, and
 * each wait is a sleep. */

#include "model/cost.h"

#define EAGER_BYTES 65536 /* where the facts do not say (tests) */
#define SLICE_BYTES 131072

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Times a byte takes that goes through a ring, and that is folded; long calls also bring it from memory and back. */
struct rates {
    double in, out, fold;
};

static struct rates rates_of(const struct tutti_facts *facts, const struct tutti_load *load)
{
    const struct tutti_machine *m = &facts->machine;
    double p = facts->shape.size;
    struct rates rates = {1 / (double)m->copy_gbs, 1 / tutti_machine_pull(m, p), 1 / (double)m->fold_gbs};
    /* What all ranks send stands for the memory that they touch: it is read once and written once. */
    if (2 * load->all_bytes > (double)m->cache_kib * 1024) {
        double half = 0.5 / tutti_machine_memory(m, p); /* a copy reads a byte and writes one */
        rates.in += half;
        rates.out += half;
        rates.fold += half;
    }
    return rates;
}

double tutti_cost_ns(const struct tutti_facts *facts, const struct tutti_load *load)
{
    const struct tutti_machine *m = &facts->machine;
    double eager = facts->eager_bytes ? (double)facts->eager_bytes : EAGER_BYTES;
    double slice = facts->slice_bytes ? (double)facts->slice_bytes : SLICE_BYTES;
    struct rates rates = rates_of(facts, load);
    double through = rates.in + rates.out;
    double pieces = larger(load->largest / slice, 1); /* that a message is cut into, each a message of its own */
    double line = m->line_ns, message = m->message_ns, wake = m->wake_ns, waits = load->waits;
    /* Long messages wait until the receiver asks for them. */
    if (load->largest > eager) line *= 2, message *= 1.5, waits *= 2;
    /* Of a long message only the first slice is waited for: the others follow it. */
    double chain = larger(load->chain / pieces, 0) * through;
    if (!facts->crowded) {
        double busy = load->messages * pieces * message / 2 + load->sent * rates.in + load->received * rates.out +
                      load->folded * rates.fold + load->copied * rates.in;
        return m->call_ns + larger(load->hops * (line + message) + chain, busy + line);
    }
    double work = waits * wake + load->all_messages * pieces * message + load->all_bytes * through +
                  load->all_folded * rates.fold + facts->shape.size * ((double)m->call_ns + load->copied * rates.in);
    return m->call_ns + larger(load->hops * (wake + message) + chain, work / facts->min_cpus);
}
