/* SPDX-License-Identifier: BSD-3-Clause */

/* What a rank says of itself as bytes, what follows from the cards of all, and the table of hosts that is made of them.
 */

#include "control/meet/card.h"

#include "base/session.h"

#include <stdio.h>
#include <string.h>

#define CARD_VERSION 3

struct cursor {
    uint8_t *at;
    bool reads;
};

static void number(struct cursor *c, void *value, unsigned bytes)
{
    uint64_t x = c->reads ? tutti_le_load(c->at, bytes) : 0;
    memcpy(c->reads ? value : &x, c->reads ? &x : value,
           bytes); /* little-endian machines only, as all of this library */
    if (!c->reads) tutti_le_store(c->at, bytes, x);
    c->at += bytes;
}

static void text(struct cursor *c, char *value, size_t bytes)
{
    if (c->reads)
        memcpy(value, c->at, bytes);
    else
        memcpy(c->at, value, bytes);
    if (c->reads) value[bytes - 1] = '\0';
    c->at += bytes;
}

#define NUMBER(field) number(c, &(field), sizeof(field))
#define NUMBERS(array)                                                                                                 \
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(array); i++) NUMBER((array)[i])

static void walk(struct cursor *c, struct tutti_card_record *r)
{
    NUMBER(r->pid);
    NUMBER(r->uid);
    NUMBER(r->cpus);
    NUMBER(r->start);
    NUMBER(r->build);
    NUMBER(r->host);
    NUMBER(r->boot);
    NUMBER(r->config_hash);
    text(c, r->version, sizeof r->version);
    text(c, r->agreed, sizeof r->agreed);
    NUMBER(r->crowded);
    NUMBER(r->decorated);
    NUMBER(r->device);
    NUMBERS(r->group);
    NUMBER(r->payer);
    NUMBER(r->quota);
    NUMBERS(r->cpu_words);
    NUMBERS(r->machine);
    NUMBER(r->port);
    text(c, r->host_name, sizeof r->host_name);
}

_Static_assert(sizeof(struct tutti_card_record) < TUTTI_CARD_RECORD_BYTES, "all fields, without gaps, and a version");

void tutti_card_encode(const struct tutti_card_record *record, uint8_t out[TUTTI_CARD_RECORD_BYTES])
{
    struct tutti_card_record copy = *record;
    struct cursor c = {.at = out + 1};
    memset(out, 0, TUTTI_CARD_RECORD_BYTES);
    out[0] = CARD_VERSION;
    walk(&c, &copy);
}

bool tutti_card_decode(const uint8_t bytes[TUTTI_CARD_RECORD_BYTES], struct tutti_card_record *out)
{
    uint8_t copy[TUTTI_CARD_RECORD_BYTES]; /* what was checked can not change any more */
    memcpy(copy, bytes, sizeof copy);
    struct cursor c = {.at = copy + 1, .reads = true};
    memset(out, 0, sizeof *out);
    if (copy[0] != CARD_VERSION) return false;
    walk(&c, out);
    return true;
}

/* ---- what follows from all cards ---- */
/* Every member compares every card with its own, so that either all of them go on or each of them knows which option
 * differs. Across hosts the leader does that for all. */

/* The value of an option in an agreed text, its default when the text does not name it. False when the text was cut,
 * so that nobody knows. */
static bool agreed_value(const char *agreed, enum tutti_option_id id, char *out, size_t capacity)
{
    const struct tutti_option_info *info = tutti_option_info(id);
    size_t name = strlen(info->name);
    bool cut = strlen(agreed) == sizeof((struct tutti_card_record *)NULL)->agreed - 1;
    for (const char *p = agreed; p && *p; p = strchr(p, ' ')) {
        if (*p == ' ') p++;
        if (strncmp(p, info->name, name) != 0 || p[name] != '=') continue;
        size_t value = strcspn(p + name + 1, " ");
        snprintf(out, capacity, "%.*s", (int)value, p + name + 1);
        return !(cut && p[name + 1 + value] == '\0');
    }
    snprintf(out, capacity, "%s", info->fallback);
    return !cut;
}

static enum tutti_status configs_fail(const char *mine, const char *theirs, uint32_t rank)
{
    for (enum tutti_option_id id = 0; id < TUTTI_N_OPTIONS; id++) {
        char a[112], b[112];
        const char *name = tutti_option_info(id)->name;
        if (!tutti_option_info(id)->agreed) continue;
        if (!agreed_value(mine, id, a, sizeof a) || !agreed_value(theirs, id, b, sizeof b) || strcmp(a, b) == 0)
            continue;
        return tutti_fail(TUTTI_ERR_CONFIG, "configurations differ: rank %u has %s=%s, this rank %s=%s", rank, name, b,
                          name, a);
    }
    return tutti_fail(TUTTI_ERR_CONFIG,
                      "configurations differ: rank %u has {%.107s}, this rank {%.107s}, beside the defaults", rank,
                      theirs, mine);
}

static enum tutti_status record_compare(const struct tutti_card_record *mine, const struct tutti_card_record *theirs,
                                        uint32_t rank)
{
    if (theirs->build != mine->build)
        return tutti_fail(TUTTI_ERR_CONFIG, "rank %u runs tutti %s, this rank another build (%s)", rank,
                          theirs->version, mine->version);
    if (theirs->host == mine->host && theirs->uid != mine->uid)
        return tutti_fail(TUTTI_ERR_CONFIG, "rank %u runs as another user than this rank", rank);
    if (theirs->config_hash != mine->config_hash) return configs_fail(mine->agreed, theirs->agreed, rank);
    return TUTTI_OK;
}

/* CPUs that the ranks may use together, by their masks and the least of their quotas. */
static uint32_t cpus_together(const struct tutti_allowance *allowances, uint32_t n)
{
    struct tutti_cpu_set all = {.words = {0}};
    uint32_t quota = UINT32_MAX;
    for (uint32_t rank = 0; rank < n; rank++) {
        for (size_t i = 0; i < TUTTI_ARRAY_LEN(all.words); i++) all.words[i] |= allowances[rank].cpus.words[i];
        if (allowances[rank].quota < quota) quota = allowances[rank].quota;
    }
    uint32_t n_cpus = tutti_cpu_set_count(&all);
    if (quota < n_cpus) n_cpus = quota;
    return n_cpus ? n_cpus : 1;
}

/* Members that share something, a host or a machine. Hosts of one machine (containers) share its CPUs. */
struct share {
    uint64_t id;
    uint32_t n, first; /* their allowances, one after the other */
};

/* The share of this id, `n` if there is none yet; mostly that of the member before. */
static uint32_t share_find(const struct share *shares, uint32_t n, uint64_t id, uint32_t hint)
{
    if (hint < n && shares[hint].id == id) return hint;
    uint32_t k = 0;
    while (k < n && shares[k].id != id) k++;
    return k;
}

/* Writes who shares with how many; returns how many shares there are. */
static uint32_t shares_count(const uint64_t *id_of, uint32_t n, struct share *shares)
{
    uint32_t n_shares = 0;
    for (uint32_t i = 0, k = 0; i < n; i++) {
        k = share_find(shares, n_shares, id_of[i], k);
        if (k == n_shares) shares[n_shares++] = (struct share){.id = id_of[i]};
        shares[k].n++;
    }
    for (uint32_t k = 1; k < n_shares; k++) shares[k].first = shares[k - 1].first + shares[k - 1].n;
    return n_shares;
}

/* Memory for n members. */
struct room {
    struct tutti_allowance *given, *sorted; /* by member; by host */
    struct share *shares;
    uint64_t *host_of, *boot_of;
};

static void machines_add(const struct room *room, uint32_t n, struct tutti_world_facts *out)
{
    const uint32_t n_machines = shares_count(room->boot_of, n, room->shares);
    for (uint32_t k = 0; k < n_machines; k++) room->shares[k].n = 0;
    for (uint32_t i = 0, k = 0; i < n; i++) {
        k = share_find(room->shares, n_machines, room->boot_of[i], k);
        room->sorted[room->shares[k].first + room->shares[k].n++] = room->given[i];
    }
    for (uint32_t k = 0; k < n_machines; k++) {
        const struct share *machine = &room->shares[k];
        const struct tutti_allowance *first = &room->sorted[machine->first];
        out->n_cpus += cpus_together(first, machine->n);
        out->crowded = out->crowded || tutti_topo_crowded(first, sizeof *first, machine->n);
    }
}

static void hosts_add(const struct room *room, uint32_t n, struct tutti_world_facts *out)
{
    const uint32_t n_hosts = shares_count(room->host_of, n, room->shares);
    for (uint32_t k = 0; k < n_hosts; k++)
        if (room->shares[k].n > out->n_host) out->n_host = room->shares[k].n;
}

static enum tutti_status cards_read(const struct tutti_card_record *mine, uint32_t n, tutti_card_reader *card,
                                    const void *arg, const struct room *room, struct tutti_cpu_place *places,
                                    struct tutti_world_facts *out)
{
    struct tutti_card_record record;
    for (uint32_t rank = 0; rank < n; rank++) {
        if (!card(arg, rank, &record))
            return tutti_fail(TUTTI_ERR_PROTOCOL, "rank %u wrote nonsense where it should say what it is", rank);
        TUTTI_TRY(record_compare(mine, &record, rank));
        if (rank == 0 || record.cpus < out->min_cpus) out->min_cpus = record.cpus;
        memcpy(room->given[rank].cpus.words, record.cpu_words, sizeof record.cpu_words);
        room->given[rank].payer = record.payer, room->given[rank].quota = record.quota;
        room->host_of[rank] = record.host, room->boot_of[rank] = record.boot;
        if (places) memcpy(places[rank].group, record.group, sizeof record.group);
        out->crowded = out->crowded || record.crowded;
        out->decorated = out->decorated || record.decorated;
        out->devices = out->devices || record.device;
        if (rank == 0) memcpy(&out->machine, record.machine, sizeof out->machine);
    }
    if (out->min_cpus == 0) out->min_cpus = 1;
    return TUTTI_OK;
}

enum tutti_status tutti_world_facts_read(const struct tutti_card_record *mine, uint32_t n, tutti_card_reader *card,
                                         const void *arg, struct tutti_cpu_place *places, struct tutti_world_facts *out)
{
    struct room room = {.given = tutti_alloc_array(n, sizeof *room.given),
                        .sorted = tutti_alloc_array(n, sizeof *room.sorted),
                        .shares = tutti_alloc_array(n, sizeof *room.shares),
                        .host_of = tutti_alloc_array(n, sizeof *room.host_of),
                        .boot_of = tutti_alloc_array(n, sizeof *room.boot_of)};
    enum tutti_status status = TUTTI_OK;
    *out = (struct tutti_world_facts){.n_host = 1};
    if (!room.given || !room.sorted || !room.shares || !room.host_of || !room.boot_of)
        status = tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the cards of %u ranks", n);
    if (status >= 0) status = cards_read(mine, n, card, arg, &room, places, out);
    if (status >= 0) machines_add(&room, n, out);
    if (status >= 0) hosts_add(&room, n, out);
    tutti_free(room.given);
    tutti_free(room.sorted);
    tutti_free(room.shares);
    tutti_free(room.host_of);
    tutti_free(room.boot_of);
    return status;
}

/* ---- the table of hosts, as bytes ---- */
/* The table of hosts as bytes. */

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
