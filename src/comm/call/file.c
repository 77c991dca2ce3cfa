/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that name an algorithm from a file. Every rank reads and proves the file by itself; so at the first such call
 * of a kind the ranks tell one another what came of it, and it is refused on all of them if one has no such file, other
 * contents or no proof. Files of the option algorithms are compared when the communicator is made. */
#include "comm/call/call.h"
#include "load/load.h"

#include <stdio.h>

struct outcome {
    uint64_t identity; /* the contents' */
    int32_t status;
    char why[244];
};

/* Whether the ranks compare: not in groups and recordings, and not where devices have calls of their own order. */
static bool is_compared(const struct tutti_call *call, const struct tutti_algorithm *algorithm)
{
    const struct tutti_comm *comm = call->comm;
    if (call->type != TUTTI_CALL_COLLECTIVE || call->via != TUTTI_VIA_ENGINE || call->options.wire) return false;
    if (comm->size == 1 || comm->device || call->collected || call->purpose) return false;
    if (!algorithm) return tutti_load_is_path(call->options.algorithm);
    return algorithm->identity && algorithm != comm->context->own[call->job.info.kind];
}

static enum tutti_status compare(const struct tutti_call *call, const struct outcome *all, const struct outcome *mine)
{
    for (int32_t r = 0; r < call->comm->size; r++) {
        if (all[r].status < 0)
            return tutti_call_fail(call, (enum tutti_status)all[r].status, "on rank %d %.*s", (int)r,
                                   (int)sizeof all[r].why, all[r].why);
        if (all[r].identity != mine->identity)
            return tutti_call_fail(call, TUTTI_ERR_ARGUMENT,
                                   "rank %d has another algorithm \"%s\": the file's contents differ from this rank's",
                                   (int)r, call->options.algorithm);
    }
    return TUTTI_OK;
}

/* What is wrong, without the call and the rank, which the others say themselves. */
static const char *reason_of(const struct tutti_call *call)
{
    char rank[32];
    const char *text = tutti_last_error()->text;
    snprintf(rank, sizeof rank, " on rank %d: ", (int)call->comm->rank);
    const char *at = strncmp(text, call->name, strlen(call->name)) == 0 ? strstr(text, rank) : NULL;
    return at ? at + strlen(rank) : text;
}

/* How far this rank comes by itself. */
static struct outcome outcome_of(const struct tutti_call *call, const struct tutti_algorithm *algorithm,
                                 enum tutti_status chosen)
{
    struct outcome mine = {.status = chosen};
    if (chosen >= 0)
        mine.status =
            tutti_load_prove(&call->comm->context->config, call->algorithm, call->job.info.kind, &call->shape);
    if (algorithm) mine.identity = algorithm->identity;
    if (mine.status < 0) snprintf(mine.why, sizeof mine.why, "%.240s", reason_of(call));
    return mine;
}

enum tutti_status tutti_file_agree(const struct tutti_call *call, enum tutti_status chosen)
{
    struct tutti_comm *comm = call->comm;
    const struct tutti_algorithm *algorithm = tutti_algorithm_find(call->options.algorithm, NULL);
    if (!is_compared(call, algorithm)) return chosen;
    const uint64_t key = algorithm ? tutti_mix64(algorithm->identity + (uint64_t)call->job.info.kind) | 1 : 0;
    _Atomic uint64_t *place = &comm->files[key % TUTTI_COMM_FILES]; /* the same on all ranks */
    if (chosen >= 0 && atomic_load(place) == key) return TUTTI_OK;

    const struct outcome mine = outcome_of(call, algorithm, chosen);
    const struct tutti_error why = *tutti_last_error();
    struct outcome *all = tutti_alloc_array((size_t)comm->size, sizeof *all);
    enum tutti_status status = tutti_agree_gather(comm, call->name, &mine, sizeof mine, all, NULL);
    if (status >= 0 && mine.status < 0)
        status = chosen < 0 ? tutti_fail_record(&why)
                            : tutti_call_fail(call, (enum tutti_status)mine.status, "%s", why.text);
    else if (status >= 0)
        status = compare(call, all, &mine);
    tutti_free(all);
    if (status >= 0) atomic_store(place, key);
    return status;
}
