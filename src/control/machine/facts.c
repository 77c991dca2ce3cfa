/* SPDX-License-Identifier: BSD-3-Clause */
/* Every member compares every card with its own, so that either all of them go on or each of them knows which option
 * differs. Across hosts the leader does that for all. */

#include "control/machine/facts.h"

#include <stdio.h>
#include <string.h>

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
