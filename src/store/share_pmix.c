/* SPDX-License-Identifier: BSD-3-Clause */

/* PMIx, opened at run time. Its few types are written down here, as all versions from 2 to 5 have them. */

#include "store/share.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PMIX_STRING 3
#define PMIX_INT 6
#define PMIX_GLOBAL 3

struct pmix_proc {
    char nspace[256];
    uint32_t rank;
};
struct pmix_value {
    uint16_t type;
    union {
        char *string;
        int integer;
        void *words[3];
    } data;
};
struct pmix_info {
    char key[512];
    uint32_t flags;
    struct pmix_value value;
};

struct pmix {
    int (*init)(struct pmix_proc *me, struct pmix_info *info, size_t n);
    int (*put)(uint8_t scope, const char *key, struct pmix_value *value);
    int (*commit)(void);
    int (*fence)(const struct pmix_proc *procs, size_t n_procs, const struct pmix_info *info, size_t n);
    int (*get)(const struct pmix_proc *of, const char *key, const struct pmix_info *info, size_t n,
               struct pmix_value **value);
    int (*finalize)(const struct pmix_info *info, size_t n);
};

static bool library_open(struct pmix *out)
{
    static const char *const names[] = {"PMIx_Init",  "PMIx_Put", "PMIx_Commit",
                                        "PMIx_Fence", "PMIx_Get", "PMIx_Finalize"};
    void *library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
    void *found[TUTTI_ARRAY_LEN(names)];
    if (!library) return false;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(names); i++)
        if (!(found[i] = dlsym(library, names[i]))) return false;
    memcpy(out, found, sizeof *out);
    return true;
}

/* What PMIx counts is whether each process that came says goodbye. One of MPI does so itself, unless it did not begin
 * yet: then it begins, and ends, later. */
static bool is_last_user(void)
{
    int (*initialized)(int *flag);
    int flag = 1;
    void *found = dlsym(RTLD_DEFAULT, "MPI_Initialized");
    if (!found) return true;
    memcpy(&initialized, &found, sizeof found);
    return initialized(&flag) == 0 && flag;
}

static enum tutti_status failed(const char *call, int code)
{
    return tutti_fail(TUTTI_ERR_SYSTEM, "the launcher's PMIx: %s failed with %d", call, code);
}

static enum tutti_status exchange(const struct pmix *pmix, const struct pmix_proc *me, const struct pmix_info *timeout,
                                  char text[TUTTI_SHARE_MAX + 1])
{
    struct pmix_proc leader = *me;
    struct pmix_value mine = {.type = PMIX_STRING, .data.string = text}, *got = NULL;
    int code = me->rank == 0 ? pmix->put(PMIX_GLOBAL, TUTTI_SHARE_KEY, &mine) : 0;
    if (code == 0) code = pmix->commit();
    if (code != 0) return failed("put", code);
    code = pmix->fence(NULL, 0, timeout, 1);
    if (code != 0) return failed("fence", code);
    leader.rank = 0;
    code = pmix->get(&leader, TUTTI_SHARE_KEY, timeout, 1, &got);
    if (code != 0 || !got) return failed("get", code);
    if (got->type != PMIX_STRING || !got->data.string || strlen(got->data.string) > TUTTI_SHARE_MAX)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the launcher's PMIx lost what rank 0 said");
    snprintf(text, TUTTI_SHARE_MAX + 1, "%s", got->data.string);
    return TUTTI_OK; /* `got` stays: who frees it differs by version */
}

enum tutti_status tutti_share_pmix(int32_t rank, uint64_t deadline_ns, char text[TUTTI_SHARE_MAX + 1])
{
    const char *space = getenv("PMIX_NAMESPACE");
    struct pmix pmix;
    struct pmix_proc me = {.rank = 0};
    const uint64_t now = tutti_now_ns(), rest = deadline_ns > now ? deadline_ns - now : 0;
    const uint64_t seconds = rest / TUTTI_NS_PER_S + 1;
    const struct pmix_info timeout = {
        .key = "pmix.timeout", .value = {.type = PMIX_INT, .data.integer = seconds > 86400 ? 86400 : (int)seconds}};
    if (!space || !space[0] || !library_open(&pmix)) return TUTTI_ERR_UNSUPPORTED;
    int code = pmix.init(&me, NULL, 0);
    if (code != 0) return failed("init", code);
    if (me.rank != (uint32_t)rank)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the launcher's PMIx says rank %u, its variables rank %d", me.rank,
                          (int)rank);
    const enum tutti_status status = exchange(&pmix, &me, &timeout, text);
    if (is_last_user()) pmix.finalize(NULL, 0);
    return status;
}
