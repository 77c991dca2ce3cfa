/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of hosts as bytes. */

#include "control/machine/table.h"

#include "base/session.h"

#include <string.h>

enum { TABLE_VERSION = 1, MACHINE_FLOATS = sizeof(struct tutti_machine) / 4 };
enum { HEAD_BYTES = 24 + 4 * MACHINE_FLOATS, HOST_BYTES = 8 + TUTTI_HOST_NAME + 17, MEMBER_BYTES = 6 };
enum { CROWDED = 1, DECORATED = 2, DEVICES = 4, ALL_FLAGS = 7 };

/* ---- the head ---- */

static void head_write(uint8_t *at, uint32_t n_hosts, uint32_t n, const struct tutti_world_facts *facts)
{
    uint32_t words[MACHINE_FLOATS];
    memset(at, 0, HEAD_BYTES);
    at[0] = TABLE_VERSION;
    at[1] =
        (uint8_t)((facts->crowded ? CROWDED : 0) | (facts->decorated ? DECORATED : 0) | (facts->devices ? DEVICES : 0));
    tutti_le_store(at + 4, 4, n_hosts), tutti_le_store(at + 8, 4, n);
    tutti_le_store(at + 12, 4, facts->min_cpus), tutti_le_store(at + 16, 4, facts->n_cpus);
    tutti_le_store(at + 20, 4, facts->n_host);
    memcpy(words, &facts->machine, sizeof words);
    for (uint32_t i = 0; i < MACHINE_FLOATS; i++) tutti_le_store(at + 24 + 4 * i, 4, words[i]);
}

/* False: it is no head of a table of n members. */
static bool head_read(const uint8_t *at, uint32_t n, uint32_t *n_hosts, struct tutti_world_facts *facts)
{
    uint32_t words[MACHINE_FLOATS];
    if (at[0] != TABLE_VERSION || at[1] > ALL_FLAGS) return false;
    *n_hosts = (uint32_t)tutti_le_load(at + 4, 4);
    *facts = (struct tutti_world_facts){.min_cpus = (uint32_t)tutti_le_load(at + 12, 4),
                                        .n_cpus = (uint32_t)tutti_le_load(at + 16, 4),
                                        .n_host = (uint32_t)tutti_le_load(at + 20, 4),
                                        .crowded = at[1] & CROWDED,
                                        .decorated = at[1] & DECORATED,
                                        .devices = at[1] & DEVICES};
    for (uint32_t i = 0; i < MACHINE_FLOATS; i++) words[i] = (uint32_t)tutti_le_load(at + 24 + 4 * i, 4);
    memcpy(&facts->machine, words, sizeof words);
    return tutti_le_load(at + 8, 4) == n && *n_hosts >= 1 && *n_hosts <= n && facts->min_cpus > 0 &&
           facts->n_cpus > 0 && facts->n_host > 0 && facts->n_host <= n;
}

/* ---- rows ---- */

static void host_write(uint8_t *at, const struct tutti_host_row *host)
{
    memset(at, 0, HOST_BYTES);
    tutti_le_store(at, 8, host->id);
    memcpy(at + 8, host->name, strnlen(host->name, sizeof host->name - 1));
    at[8 + TUTTI_HOST_NAME] = host->address.family;
    memcpy(at + 9 + TUTTI_HOST_NAME, host->address.bytes, 16);
}

static bool host_read(const uint8_t *at, struct tutti_host_row *host)
{
    *host = (struct tutti_host_row){.id = tutti_le_load(at, 8), .address.family = at[8 + TUTTI_HOST_NAME]};
    memcpy(host->name, at + 8, sizeof host->name - 1);
    for (char *c = host->name; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
    memcpy(host->address.bytes, at + 9 + TUTTI_HOST_NAME, 16);
    return host->address.family == 0 || host->address.family == 4 || host->address.family == 6;
}

/* The row of this host; n_hosts: there is none yet. */
static uint32_t host_find(const struct tutti_hosts *hosts, uint64_t id, uint32_t hint)
{
    if (hint < hosts->n_hosts && hosts->hosts[hint].id == id) return hint;
    uint32_t h = 0;
    while (h < hosts->n_hosts && hosts->hosts[h].id != id) h++;
    return h;
}

static void member_add(struct tutti_hosts *hosts, uint32_t member, uint32_t host, uint16_t port)
{
    struct tutti_host_row *row = &hosts->hosts[host];
    if (row->n == 0) row->leader = member;
    hosts->members[member] = (struct tutti_member_row){.host = host, .local = row->n++, .port = port};
}

static enum tutti_status rows_alloc(struct tutti_hosts *hosts, uint32_t n_hosts, uint32_t n)
{
    *hosts = (struct tutti_hosts){.n_members = n,
                                  .hosts = tutti_alloc_array(n_hosts, sizeof *hosts->hosts),
                                  .members = tutti_alloc_array(n, sizeof *hosts->members)};
    if (hosts->hosts && hosts->members) return TUTTI_OK;
    tutti_hosts_fini(hosts);
    return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a table of %u members", n);
}

/* ---- both ways ---- */

static void cards_add(struct tutti_hosts *hosts, tutti_card_reader *card, const void *arg,
                      const struct tutti_net_address *addresses)
{
    struct tutti_card_record record;
    for (uint32_t i = 0, h = 0; i < hosts->n_members; i++) {
        card(arg, i, &record); /* it was read before */
        h = host_find(hosts, record.host, h);
        if (h == hosts->n_hosts) {
            struct tutti_host_row *row = &hosts->hosts[hosts->n_hosts++];
            *row = (struct tutti_host_row){.id = record.host, .address = addresses[i]};
            memcpy(row->name, record.host_name, strnlen(record.host_name, sizeof row->name - 1));
        }
        member_add(hosts, i, h, record.port);
    }
}

enum tutti_status tutti_table_make(uint32_t n, tutti_card_reader *card, const void *arg,
                                   const struct tutti_net_address *addresses, const struct tutti_world_facts *facts,
                                   uint8_t **out, uint32_t *bytes)
{
    struct tutti_hosts hosts;
    TUTTI_TRY(rows_alloc(&hosts, n, n));
    cards_add(&hosts, card, arg, addresses);
    const size_t total = HEAD_BYTES + (size_t)HOST_BYTES * hosts.n_hosts + (size_t)MEMBER_BYTES * n;
    uint8_t *table = tutti_alloc(total), *at = table;
    if (table) {
        head_write(at, hosts.n_hosts, n, facts);
        at += HEAD_BYTES;
        for (uint32_t h = 0; h < hosts.n_hosts; h++, at += HOST_BYTES) host_write(at, &hosts.hosts[h]);
        for (uint32_t i = 0; i < n; i++, at += MEMBER_BYTES) {
            tutti_le_store(at, 4, hosts.members[i].host);
            tutti_le_store(at + 4, 2, hosts.members[i].port);
        }
        *out = table, *bytes = (uint32_t)total;
    }
    tutti_hosts_fini(&hosts);
    return table ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "no memory for a table of %u members", n);
}

static bool rows_read(const uint8_t *at, uint32_t n_hosts, struct tutti_hosts *hosts)
{
    for (; hosts->n_hosts < n_hosts; hosts->n_hosts++, at += HOST_BYTES)
        if (!host_read(at, &hosts->hosts[hosts->n_hosts])) return false;
    for (uint32_t i = 0; i < hosts->n_members; i++, at += MEMBER_BYTES) {
        const uint64_t host = tutti_le_load(at, 4);
        if (host >= n_hosts) return false;
        member_add(hosts, i, (uint32_t)host, (uint16_t)tutti_le_load(at + 4, 2));
    }
    for (uint32_t h = 0; h < n_hosts; h++)
        if (hosts->hosts[h].n == 0 || (h > 0 && hosts->hosts[h].leader < hosts->hosts[h - 1].leader)) return false;
    return true;
}

enum tutti_status tutti_table_read(const uint8_t *bytes, uint32_t n_bytes, uint32_t n, struct tutti_world_facts *facts,
                                   struct tutti_hosts *hosts)
{
    uint32_t n_hosts = 0;
    if (n_bytes < HEAD_BYTES || !head_read(bytes, n, &n_hosts, facts) ||
        n_bytes != HEAD_BYTES + (uint64_t)HOST_BYTES * n_hosts + (uint64_t)MEMBER_BYTES * n)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "%u bytes that are no table of %u members", n_bytes, n);
    TUTTI_TRY(rows_alloc(hosts, n_hosts, n));
    if (rows_read(bytes + HEAD_BYTES, n_hosts, hosts)) return TUTTI_OK;
    tutti_hosts_fini(hosts);
    return tutti_fail(TUTTI_ERR_PROTOCOL, "a table of %u members on %u hosts that can not be", n, n_hosts);
}
