/* SPDX-License-Identifier: BSD-3-Clause */

/* What members of a council of lighthouses say, in any order and of any content: what one keeps never goes back, it
 * answers within bounds, and it goes on. */

#include "ft/rules/council.h"
#include "fuzz.h"

enum { MEMBERS = 3, ME = 0, STEP = 24 };

static uint64_t kept; /* the largest ballot */

static void on_send(void *arg, uint32_t to, const struct tutti_council_message *m)
{
    (void)arg;
    FUZZ_CHECK(to < MEMBERS && to != ME && m->from == ME && (unsigned)m->kind < TUTTI_COUNCIL_N_KINDS);
    for (uint32_t i = 0; i < m->n_records; i++) FUZZ_CHECK(m->records[i].key[0] && m->records[i].n <= 8);
}

static enum tutti_council_kept on_keep(void *arg, uint64_t promised, const struct tutti_record *record)
{
    (void)arg;
    FUZZ_CHECK(promised >= kept);
    FUZZ_CHECK(!record || record->ballot <= promised);
    kept = promised;
    return TUTTI_COUNCIL_KEPT;
}

static void on_leads(void *arg, bool leads)
{
    (void)arg, (void)leads;
}

static void on_decided(void *arg, const struct tutti_record *record)
{
    (void)arg;
    FUZZ_CHECK(record->ballot <= kept && record->number > 0);
}

static uint64_t small(uint8_t byte)
{
    return byte == 255 ? UINT64_MAX : (uint64_t)(byte >> 2) << 8 | (byte & 3);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const struct tutti_council_options options = {MEMBERS, ME, 1000, 100, 7};
    const struct tutti_council_out out = {NULL, on_send, on_keep, on_leads, on_decided};
    static const char *const keys[] = {"a", "b", "c", "d"};
    struct tutti_council *council;
    uint64_t now = 5;
    kept = 0;
    if (tutti_council_create(&options, &out, &council) < 0) abort();
    tutti_council_start(council, now);
    for (; n >= STEP; bytes += STEP, n -= STEP) {
        const struct tutti_record record = {keys[bytes[8] % 4], bytes + 16, bytes[9] % 9, small(bytes[10]),
                                            small(bytes[11])};
        const struct tutti_council_message message = {.kind = (enum tutti_council_kind)(bytes[0] % 6),
                                                      .from = bytes[1] % 4,
                                                      .good = bytes[2] & 1,
                                                      .trial = bytes[2] >> 1 & 1,
                                                      .ballot = small(bytes[3]),
                                                      .promised = small(bytes[4]),
                                                      .number = bytes[5],
                                                      .sent_ns = now - bytes[6] % 8,
                                                      .records = &record,
                                                      .n_records = bytes[7] & 1};
        now += bytes[12] % 4 == 0 ? (uint64_t)bytes[13] * 8 : 0;
        tutti_council_received(council, &message, now);
        tutti_council_tick(council, now);
        if (bytes[14] % 8 == 0) (void)tutti_council_propose(council, keys[bytes[15] % 4], bytes + 16, 4, now);
        FUZZ_CHECK(tutti_council_n_records(council) <= 4);
        FUZZ_CHECK(!tutti_council_leads(council, now) || tutti_council_leader(council, now) == ME);
    }
    tutti_council_destroy(council);
    return 0;
}
