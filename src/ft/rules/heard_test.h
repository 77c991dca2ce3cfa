/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_RULES_HEARD_TEST_H
#define TUTTI_FT_RULES_HEARD_TEST_H

/* What comes out of the machine of a group, as lines of text. */

#include "test.h"

#include "ft/rules/manager.h"

#include <string.h>

#define MS TUTTI_NS_PER_MS

struct heard {
    char text[8192];
};
#define SAY(arg, ...) tutti_append(((struct heard *)(arg))->text, sizeof(((struct heard *)(arg))->text), __VA_ARGS__)

static inline void on_ask(void *arg, const struct tutti_replica *group, uint64_t deadline)
{
    SAY(arg, "ask %lld %lld %d %u %llu\n", (long long)group->step, (long long)group->commit_failures,
        group->shrink_only, group->n_handles, (unsigned long long)deadline);
}
static inline void on_withdraw(void *arg)
{
    SAY(arg, "withdraw\n");
}
static inline void on_placed(void *arg, uint64_t request, uint32_t rank, const struct tutti_quorum *quorum,
                             const struct tutti_place *place)
{
    SAY(arg, "placed %llu %u %lld %u %d\n", (unsigned long long)request, rank, (long long)quorum->id, place->rank,
        place->heals);
}
static inline void on_decided(void *arg, uint64_t request, bool commit)
{
    SAY(arg, "decided %llu %d\n", (unsigned long long)request, commit);
}
static inline void on_refused(void *arg, uint64_t request, enum tutti_manager_why why, const char *text)
{
    assert_true(text[0] != '\0');
    SAY(arg, "refused %llu %d\n", (unsigned long long)request, (int)why);
}
static inline void on_beat(void *arg, const struct tutti_manager_progress *p)
{
    SAY(arg, "beat %u %u %lld %llu\n", p->n_ranks, p->rank, (long long)p->step, (unsigned long long)p->collective);
}
static inline void on_leave(void *arg, const char *why)
{
    assert_non_null(strstr(why, "is gone"));
    SAY(arg, "leave\n");
}
static inline struct tutti_manager_out out_to(struct heard *heard)
{
    return (struct tutti_manager_out){heard, on_ask, on_withdraw, on_placed, on_decided, on_refused, on_beat, on_leave};
}

#endif
