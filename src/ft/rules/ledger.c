/* SPDX-License-Identifier: BSD-3-Clause */
/* Quorums as records: the number (8 bytes, little-endian), then the members' names, each with the 0 at its end. */
#include "ft/rules/ledger.h"

#include "base/session.h"

#include <string.h>

#define HEAD 8

/* NULL: out of memory. */
static uint8_t *encode(const struct tutti_quorum *quorum, size_t *n)
{
    *n = HEAD;
    for (uint32_t i = 0; i < quorum->n; i++) *n += strlen(quorum->members[i]->replica_id) + 1;
    uint8_t *bytes = tutti_alloc(*n), *at = bytes;
    if (!bytes) return NULL;
    tutti_le_store(at, HEAD, (uint64_t)quorum->id);
    at += HEAD;
    for (uint32_t i = 0; i < quorum->n; i++) {
        const size_t length = strlen(quorum->members[i]->replica_id) + 1;
        memcpy(at, quorum->members[i]->replica_id, length);
        at += length;
    }
    return bytes;
}

/* How many names there are; false: it is no record of a quorum. */
static bool count_names(const struct tutti_record *record, uint32_t *n)
{
    *n = 0;
    if (record->n < HEAD || (record->n > HEAD && record->bytes[record->n - 1] != '\0')) return false;
    for (size_t i = HEAD; i < record->n; i++) *n += record->bytes[i] == '\0';
    return true;
}

static enum tutti_status restore(const struct tutti_record *record, struct tutti_lighthouse *machine, uint64_t now)
{
    uint32_t n;

    if (!count_names(record, &n))
        return tutti_fail(TUTTI_ERR_PROTOCOL, "what is kept of job %.64s is no quorum", record->key);
    const char **names = tutti_alloc_array(n + 1, sizeof(*names)), *at = (const char *)record->bytes + HEAD;
    if (!names) return tutti_fail(TUTTI_ERR_MEMORY, "the lighthouse is out of memory");
    for (uint32_t i = 0; i < n; i++, at += strlen(at) + 1) names[i] = at;
    const enum tutti_status status =
        tutti_lighthouse_restore(machine, (int64_t)tutti_le_load(record->bytes, HEAD), names, n, now);
    tutti_free(names);
    return status;
}

enum tutti_status tutti_ledger_begin(struct tutti_ledger *ledger, const char *job, struct tutti_council *council,
                                     struct tutti_lighthouse *machine, uint64_t now)
{
    struct tutti_record record;

    *ledger = (struct tutti_ledger){.job = job, .council = council};
    return tutti_council_record(council, job, &record) ? restore(&record, machine, now) : TUTTI_OK;
}

void tutti_ledger_end(struct tutti_ledger *ledger)
{
    tutti_free(ledger->asked);
    ledger->asked = NULL;
}

bool tutti_ledger_commit(struct tutti_ledger *ledger, const struct tutti_quorum *quorum, uint64_t now)
{
    size_t n;
    uint8_t *bytes = encode(quorum, &n);

    if (!bytes) return false;
    if (ledger->asked && ledger->n_asked == n && memcmp(ledger->asked, bytes, n) == 0) {
        tutti_free(bytes);
        return ledger->decided;
    }
    tutti_free(ledger->asked);
    ledger->asked = bytes, ledger->n_asked = n;
    ledger->decided = false;
    ledger->inside = true;
    const enum tutti_status status = tutti_council_propose(ledger->council, ledger->job, bytes, n, now);
    ledger->inside = false;
    if (status < 0) tutti_ledger_end(ledger);
    return status >= 0 && ledger->decided; /* a lone lighthouse decides at once */
}

bool tutti_ledger_decided(struct tutti_ledger *ledger, const struct tutti_record *record)
{
    if (strcmp(record->key, ledger->job) != 0 || !ledger->asked || record->n != ledger->n_asked ||
        memcmp(record->bytes, ledger->asked, record->n) != 0)
        return false;
    ledger->decided = true;
    return !ledger->inside;
}
