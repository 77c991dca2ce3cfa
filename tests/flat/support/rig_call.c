/* SPDX-License-Identifier: BSD-3-Clause */
/* The rig's calls, as the communicator would make them. */
#include "rig_call.h"

#include "comm/comm.h"

#include <string.h>

static void call_v(const struct mark_plan *p, const struct mark_sheet *s, struct tutti_bind *bind)
{
    static const struct {
        bool in, counts, displs;
    } tables[TUTTI_N_KINDS] = {[TUTTI_ALL_GATHER] = {false, true, true},
                               [TUTTI_GATHER] = {false, true, true},
                               [TUTTI_SCATTER] = {true, true, true},
                               [TUTTI_REDUCE_SCATTER] = {true, true, false},
                               [TUTTI_ALL_TO_ALL] = {false, true, true}};
    const struct mark_side *side = tables[p->kind].in ? &s->in : &s->out;
    bool rooted = p->kind == TUTTI_GATHER || p->kind == TUTTI_SCATTER;
    const struct mark_side *own = p->kind == TUTTI_SCATTER ? &s->out : &s->in;
    bind->v = true;
    bind->count = rooted ? own->count[0] : 0;
    bind->counts = side->n ? side->count : NULL;
    bind->displs = side->n && tables[p->kind].displs ? side->at : NULL;
    if (p->kind == TUTTI_ALL_TO_ALL) bind->in_counts = s->in.count, bind->in_displs = s->in.at;
}

void rig_call_make(const struct mark_plan *p, uint32_t me, struct mark_sheet *s, struct tutti_backend_call *call)
{
    const struct tutti_kind_info *kind = tutti_kind_info(p->kind);
    bool data = p->kind != TUTTI_BARRIER, shared = p->kind == TUTTI_ALL_GATHER || p->kind == TUTTI_REDUCE_SCATTER;
    uint64_t factor = 3, hash = tutti_hash64(shared && p->kind == TUTTI_ALL_GATHER ? s->out.count : s->in.count,
                                             shared ? p->n * sizeof(size_t) : 0, 0);
    *call = (struct tutti_backend_call){.bind = {.dtype = TUTTI_UINT64, .divisor = 1, .count = data ? p->count : 0},
                                        .commutative = true};
    call->bind.input = s->send;
    call->bind.output = p->kind == TUTTI_EXSCAN && me == 0 ? NULL : s->recv;
    if (kind->reduces) call->bind.reduce = tutti_reduce_find(TUTTI_UINT64, TUTTI_SUM, "auto");
    if (kind->reduces && p->scaled) call->bind.scale = tutti_scale_find(TUTTI_UINT64), call->bind.factor = call->factor;
    memcpy(call->factor, &factor, sizeof factor);
    if (p->v) call_v(p, s, &call->bind);
    if (p->algorithm[0]) call->method = strchr(p->algorithm, ':') ? strchr(p->algorithm, ':') + 1 : NULL;
    call->info = (struct tutti_call_info){.kind = p->kind,
                                          .dtype = TUTTI_UINT64,
                                          .op = !kind->reduces ? -1
                                                : p->scaled    ? TUTTI_PREMUL_SUM
                                                               : TUTTI_SUM,
                                          .root = kind->rooted ? (int32_t)p->root : -1,
                                          .count = !p->v    ? call->bind.count
                                                   : shared ? hash | TUTTI_COUNT_UNEQUAL
                                                            : TUTTI_COUNT_UNEQUAL};
    call->info.signature = tutti_sign(&call->info, p->v, false, 0, 0);
}
