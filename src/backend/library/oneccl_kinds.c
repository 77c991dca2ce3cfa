/* SPDX-License-Identifier: BSD-3-Clause */

/* What each kind of collective, type and operation is in oneCCL's words, and what it does wrong or not at all, which is
 * left to tutti's own ways: these tables are the one place that says so. What only moves travels as bytes. */

#include "backend/library/library.h"
#include "backend/library/oneccl.h"
#include "model/costs.h"

#include <string.h>

#define ELEMENTS_MOST INT32_MAX /* one call's; more were not tried */

/* ---- types and operations ---- */

#define FLOATS (LIBRARY_OP(TUTTI_SUM) | LIBRARY_OP(TUTTI_PROD))
#define COMPLEX LIBRARY_OP(TUTTI_SUM)
#define LACKS "it has no such type"
#define NONE "it has none"

static const struct {
    uint32_t ops;    /* what it reduces, and rightly */
    uint32_t ranks;  /* on host memory, among so many at most; 0: any number */
    const char *why; /* what is left, and why */
} types[TUTTI_N_DTYPES] = {
    [TUTTI_INT8] = {LIBRARY_ORDERED, 0, NULL},
    [TUTTI_UINT8] = {LIBRARY_ORDERED, 0, NULL},
    [TUTTI_INT32] = {LIBRARY_ORDERED, 0, NULL},
    [TUTTI_UINT32] = {LIBRARY_ORDERED, 0, NULL},
    [TUTTI_INT64] = {LIBRARY_ORDERED, 0, NULL},
    [TUTTI_UINT64] = {LIBRARY_ORDERED, 0, NULL},
    [TUTTI_FLOAT16] = {FLOATS, 2, "among more than 2 ranks: it rounds at every hop"},
    [TUTTI_BFLOAT16] = {FLOATS, 2, "among more than 2 ranks: it rounds at every hop"},
    [TUTTI_FLOAT32] = {FLOATS, 0, NULL},
    [TUTTI_FLOAT64] = {FLOATS, 0, NULL},
    [TUTTI_COMPLEX64] = {COMPLEX, 0, NULL},
    [TUTTI_COMPLEX128] = {COMPLEX, 0, NULL},
    [TUTTI_BOOL] = {.why = LACKS},
    [TUTTI_INT16] = {.why = LACKS},
    [TUTTI_UINT16] = {.why = LACKS},
    [TUTTI_FLOAT8_E4M3FN] = {.why = LACKS},
    [TUTTI_FLOAT8_E5M2] = {.why = LACKS},
};

static const struct {
    int op;
    const char *why; /* what is left, and why */
} ops[TUTTI_N_OPS] = {
    [TUTTI_SUM] = {ONECCL_SUM, NULL},
    [TUTTI_PROD] = {ONECCL_PROD, "of complex numbers: it has none"},
    [TUTTI_MIN] = {ONECCL_MIN, "of floats: it drops NaN, and ranks get different results"},
    [TUTTI_MAX] = {ONECCL_MAX, "of floats: it drops NaN, and ranks get different results"},
    [TUTTI_AVG] = {-1, "it refuses it"},
    [TUTTI_PREMUL_SUM] = {-1, "it has none on CPUs"},
    [TUTTI_BAND] = {-1, NONE},
    [TUTTI_BOR] = {-1, NONE},
    [TUTTI_BXOR] = {-1, NONE},
};

/* ---- kinds ---- */

#define RUN(name) static int name(const struct oneccl_library *l, const struct oneccl_job *j, void *comm)
RUN(all_reduce)
{
    return l->all_reduce(j->in, j->out, j->count, j->type, j->op, comm, j->stream);
}
RUN(reduce)
{
    return l->reduce(j->in, j->out, j->count, j->type, j->op, j->root, comm, j->stream);
}
RUN(broadcast)
{
    return l->broadcast(j->in, j->out, j->count, j->type, j->root, comm, j->stream);
}
RUN(all_gather)
{
    return l->all_gather(j->in, j->out, j->count, j->type, comm, j->stream);
}
RUN(reduce_scatter)
{
    return l->reduce_scatter(j->in, j->out, j->count, j->type, j->op, comm, j->stream);
}
RUN(all_to_all)
{
    return l->all_to_all(j->in, j->out, j->count, j->type, comm, j->stream);
}
RUN(scatter)
{
    return l->scatter(j->in, j->out, j->count, j->type, j->root, comm, j->stream);
}
#undef RUN

static const struct {
    int (*run)(const struct oneccl_library *library, const struct oneccl_job *job, void *comm);
    const char *name;
    const char *why; /* what is left, and why */
} kinds[TUTTI_N_KINDS] = {
    [TUTTI_ALL_REDUCE] = {all_reduce, "onecclAllReduce", NULL},
    [TUTTI_REDUCE] = {reduce, "onecclReduce", NULL},
    [TUTTI_BROADCAST] = {broadcast, "onecclBroadcast", NULL},
    [TUTTI_ALL_GATHER] = {all_gather, "onecclAllGather", NULL},
    [TUTTI_REDUCE_SCATTER] = {reduce_scatter, "onecclReduceScatter", NULL},
    [TUTTI_ALL_TO_ALL] = {all_to_all, "onecclAllToAll", NULL},
    [TUTTI_SCATTER] = {scatter, "onecclScatter", "before 2022.2: it has none"},
    [TUTTI_GATHER] = {.why = NONE},
    [TUTTI_BARRIER] = {.why = NONE},
    [TUTTI_SCAN] = {.why = NONE},
    [TUTTI_EXSCAN] = {.why = NONE},
};
static const struct oneccl_left others[] = {
    {"v_forms", "it has none, or ends the process where two ranks' counts differ"},
    {"send_recv", "it has no tags, and no order but that of the calls"},
    {"reproducible", "reductions do not fold in rank order"},
};

static bool has_kind(const struct oneccl_library *library, uint32_t kind)
{
    return kinds[kind].run && (kinds[kind].run != scatter || library->scatter);
}

bool oneccl_can(const struct oneccl_library *library, const struct tutti_backend_call *call, uint32_t n, bool devices)
{
    const struct tutti_call_info *info = &call->info;
    const struct tutti_bind *bind = &call->bind;
    if ((uint32_t)info->kind >= TUTTI_N_KINDS || !has_kind(library, info->kind)) return false;
    if (call->method || bind->user || bind->v || bind->gate || call->within || call->counted) return false;
    const bool reduces = tutti_kind_info(info->kind)->reduces;
    const size_t elements = reduces ? library_dtypes[info->dtype].elements : tutti_dtype_bytes(info->dtype);
    if (bind->count > ELEMENTS_MOST / n / (elements ? elements : 1)) return false;
    if (!reduces) return true;
    const uint32_t ranks = devices ? 0 : types[info->dtype].ranks;
    return library_reduces(info, types[info->dtype].ops) && (ranks == 0 || n <= ranks);
}

double oneccl_cost_ns(const struct tutti_backend_call *call, uint32_t n)
{
    const struct tutti_call_info *info = &call->info;
    const uint32_t rounds = n > 1 ? 32 - (uint32_t)__builtin_clz(n - 1) : 0;
    return library_cost_ns(info, tutti_kinds[info->kind].block_a_slot ? n : 2, COST_ONECCL_LATENCY_NS * rounds,
                           COST_ONECCL_BYTES_A_NS);
}

void oneccl_job_of(const struct tutti_backend_call *call, struct oneccl_job *job)
{
    const struct tutti_call_info *info = &call->info;
    const bool reduces = tutti_kind_info(info->kind)->reduces;
    job->run = kinds[info->kind].run;
    job->name = kinds[info->kind].name;
    job->type = reduces ? (int)library_dtypes[info->dtype].type : LIBRARY_INT8;
    job->op = reduces ? ops[info->op].op : 0;
    job->root = info->root < 0 ? 0 : info->root;
    job->count = call->bind.count * (reduces ? library_dtypes[info->dtype].elements : tutti_dtype_bytes(info->dtype));
}

static int messages(const struct oneccl_library *l, const struct oneccl_job *j, void *comm)
{
    const struct tutti_backend_message *all = (const void *)j->in;
    int result = l->group_start();
    if (result != ONECCL_OK) return result;
    for (size_t i = 0; i < j->n_messages && result == ONECCL_OK; i++) {
        const struct tutti_backend_message *m = &all[i];
        result = m->send ? l->send(m->buffer, m->bytes, LIBRARY_INT8, (int)m->peer, comm, j->stream)
                         : l->recv(m->buffer, m->bytes, LIBRARY_INT8, (int)m->peer, comm, j->stream);
    }
    const int ended = l->group_end();
    return result == ONECCL_OK ? ended : result;
}

void oneccl_job_of_messages(struct oneccl_job *job, size_t n)
{
    job->run = messages;
    job->name = "onecclSend and onecclRecv";
    job->n_messages = n;
}

/* ---- the tables in words ---- */

void oneccl_say_served(const struct oneccl_library *library, char *out, size_t capacity)
{
    uint32_t n = 0;
    out[0] = 0;
    for (uint32_t k = 0; k < TUTTI_N_KINDS; k++)
        if (has_kind(library, k)) tutti_append(out, capacity, "%s%s", n++ ? ", " : "", tutti_kinds[k].name);
}

size_t oneccl_list_left(const struct oneccl_library *library, struct oneccl_left *out, size_t capacity)
{
    struct oneccl_left all[TUTTI_N_KINDS + TUTTI_N_OPS + TUTTI_N_DTYPES + TUTTI_ARRAY_LEN(others)];
    size_t n = 0;
    for (uint32_t k = 0; k < TUTTI_N_KINDS; k++)
        if (!has_kind(library, k)) all[n++] = (struct oneccl_left){tutti_kinds[k].name, kinds[k].why};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(others); i++) all[n++] = others[i];
    for (uint32_t op = 0; op < TUTTI_N_OPS; op++)
        if (ops[op].why) all[n++] = (struct oneccl_left){tutti_op_name((enum tutti_op)op), ops[op].why};
    for (uint32_t t = 0; t < TUTTI_N_DTYPES; t++)
        if (types[t].why) all[n++] = (struct oneccl_left){tutti_dtype_name((enum tutti_dtype)t), types[t].why};
    if (n > capacity) n = capacity;
    memcpy(out, all, n * sizeof *out);
    return n;
}
