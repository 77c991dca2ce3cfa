/* SPDX-License-Identifier: BSD-3-Clause */

/* What a lighthouse answers a client: answers to Step, one after another, each behind its length in two bytes; and each
 * as a quorum of torchft's. What the client then knows hangs together. */

#include "fuzz.h"

#include "ft/client/quorum_cache.h"
#include "ft/rpc/message.h"

static void check(const struct tutti_quorum_cache *known)
{
    const struct tutti_quorum *quorum = &known->quorum;

    FUZZ_CHECK((known->epoch == 0) == (quorum->n == 0));
    for (uint32_t i = 0; i < quorum->n; i++) {
        FUZZ_CHECK(i == 0 || strcmp(quorum->members[i - 1]->replica_id, quorum->members[i]->replica_id) < 0);
        FUZZ_CHECK(tutti_quorum_find(quorum, quorum->members[i]->replica_id) == quorum->members[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct tutti_quorum_cache known = {0};
    struct tutti_quorum *quorum;

    tutti_log_threshold = TUTTI_LOG_ERROR;
    while (n >= 2) {
        const size_t wanted = bytes[0] | (size_t)bytes[1] << 8, some = wanted < n - 2 ? wanted : n - 2;
        tutti_quorum_cache_update(&known, bytes + 2, some);
        check(&known);
        if (tutti_message_quorum(bytes + 2, some, &quorum) >= 0) tutti_quorum_give(quorum);
        bytes += 2 + some, n -= 2 + some;
    }
    tutti_quorum_cache_clear(&known);
    return 0;
}
