/* SPDX-License-Identifier: BSD-3-Clause */

/* What ranks tell of themselves, and what the leader tells of all: cards and the table of hosts. What is read is whole:
 * each member is on a host of the table, each host has members, and texts end. The first byte is the number of ranks.
 */

#include "control/meet/card.h"
#include "fuzz.h"

static void check_table(const uint8_t *bytes, size_t n, uint32_t n_ranks)
{
    struct tutti_world_facts facts;
    struct tutti_hosts hosts;
    uint32_t n_members = 0;
    if (tutti_table_read(bytes, (uint32_t)n, n_ranks, &facts, &hosts) != TUTTI_OK) return;
    FUZZ_CHECK(hosts.n_members == n_ranks && hosts.n_hosts >= 1 && hosts.n_hosts <= n_ranks);
    for (uint32_t h = 0; h < hosts.n_hosts; h++) {
        const struct tutti_host_row *row = &hosts.hosts[h];
        FUZZ_CHECK(row->n > 0 && row->leader < n_ranks && hosts.members[row->leader].host == h);
        FUZZ_CHECK(hosts.members[row->leader].local == 0 && memchr(row->name, 0, sizeof row->name));
        n_members += row->n;
    }
    FUZZ_CHECK(n_members == n_ranks);
    for (uint32_t i = 0; i < n_ranks; i++) {
        char name[TUTTI_HOST_TEXT + 32];
        FUZZ_CHECK(hosts.members[i].host < hosts.n_hosts);
        FUZZ_CHECK(hosts.members[i].local < hosts.hosts[hosts.members[i].host].n);
        FUZZ_CHECK(strlen(tutti_hosts_say(&hosts, i, name, sizeof name)) < sizeof name);
    }
    tutti_hosts_fini(&hosts);
}

static void check_card(const uint8_t bytes[TUTTI_CARD_RECORD_BYTES])
{
    struct tutti_card_record card, back;
    uint8_t again[TUTTI_CARD_RECORD_BYTES], twice[TUTTI_CARD_RECORD_BYTES];
    if (!tutti_card_decode(bytes, &card)) return;
    FUZZ_CHECK(memchr(card.version, 0, sizeof card.version) && memchr(card.agreed, 0, sizeof card.agreed));
    FUZZ_CHECK(memchr(card.host_name, 0, sizeof card.host_name));
    tutti_card_encode(&card, again);
    FUZZ_CHECK(tutti_card_decode(again, &back));
    tutti_card_encode(&back, twice);
    FUZZ_CHECK(memcmp(again, twice, sizeof twice) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    uint8_t card[TUTTI_CARD_RECORD_BYTES] = {0};
    if (n == 0) return 0;
    check_table(bytes + 1, n - 1, 1 + bytes[0]);
    memcpy(card, bytes + 1, n - 1 < sizeof card ? n - 1 : sizeof card);
    check_card(card);
    return 0;
}
