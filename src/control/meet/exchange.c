/* SPDX-License-Identifier: BSD-3-Clause */

/* What this rank is, and how the members of a host tell one another by the cards in their segment. */

#include "control/meet/meeting.h"

#include "control/meet/card.h"
#include "transport/host/segment.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- what this rank is ---- */

/* 0 when it can not be told. */
static uint64_t namespace_id(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (uint64_t)info.st_ino : 0;
}

static uint64_t boot_id(void)
{
    char boot[40] = {0};
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!f || !fgets(boot, sizeof boot, f)) gethostname(boot, sizeof boot - 1);
    if (f) fclose(f);
    return tutti_hash64(boot, sizeof boot, 0);
}

uint64_t tutti_host_id(const char *named)
{
    const uint64_t spaces[] = {boot_id(), namespace_id("/proc/self/ns/net"), namespace_id("/proc/self/ns/pid")};
    if (named && named[0]) return tutti_hash64(named, strlen(named), spaces[0]);
    return tutti_hash64(spaces, sizeof spaces, 0);
}

void tutti_host_name(const char *named, char *out, size_t capacity)
{
    char host[256] = "?";
    gethostname(host, sizeof host - 1);
    snprintf(out, capacity, "%s", named && named[0] ? named : host);
}

/* What this rank may use and where that is. Without the host's topology it is nowhere in particular. */
static enum tutti_status place_fill(struct tutti_card_record *record)
{
    const struct tutti_topo *host;
    struct tutti_cpu_set cpus;
    if (!tutti_cpus_affinity(&cpus)) tutti_log(TUTTI_LOG_INFO, "the kernel does not say where this rank may run");
    memcpy(record->cpu_words, cpus.words, sizeof record->cpu_words);
    record->quota = tutti_cpus_quota(&record->payer);
    const enum tutti_status status = tutti_topo_host(&host);
    if (status == TUTTI_ERR_MEMORY) return status;
    if (status < 0) tutti_log(TUTTI_LOG_INFO, "%s", tutti_last_error()->text);
    const struct tutti_topo unknown = {.n_cpus = 0};
    const struct tutti_cpu_place place = tutti_topo_place(status < 0 ? &unknown : host, &cpus);
    memcpy(record->group, place.group, sizeof record->group);
    return TUTTI_OK;
}

enum tutti_status tutti_card_fill(const struct tutti_card_self *self, const struct tutti_config *config,
                                  struct tutti_card_record *out)
{
    memset(out, 0, sizeof *out);
    out->pid = (int32_t)getpid();
    out->uid = (uint32_t)geteuid();
    out->cpus = tutti_cpus_allowed();
    out->start = tutti_meeting_started(NULL, out->pid);
    out->build = self->build, out->host = self->host, out->boot = boot_id(), out->port = self->port;
    out->config_hash = tutti_config_hash(config);
    out->crowded = self->crowded;
    out->decorated = config->text[TUTTI_OPT_decorators][0] != '\0';
    out->device = self->device;
    snprintf(out->version, sizeof out->version, "%s", self->version);
    tutti_host_name(config->text[TUTTI_OPT_host], out->host_name, sizeof out->host_name);
    memcpy(out->machine, self->machine ? self->machine : &tutti_machine_default, sizeof out->machine);
    tutti_config_agreed_text(config, out->agreed, sizeof out->agreed);
    return place_fill(out);
}

/* ---- the exchange ---- */
/* The table of cards in the segment: each rank writes its record once, and reads those of all. Every rank compares
 * every record with its own, so that either all of them go on or each of them knows which option differs. Beside the
 * record a card says who can not go on; card 0 also holds the gate: how many have opened their transport, and who
 * failed. */

#define SLICE_NS (200 * TUTTI_NS_PER_MS) /* between looks at who died */

struct card {
    _Atomic int32_t pid;            /* the leader's knowledge (0: none), then the rank's own, */
    _Atomic uint64_t pid_namespace; /* in the numbers of this namespace, which is written first */
    int32_t trouble_status, trouble_peer;
    char trouble[84];             /* why this rank can not go on, with what status, and who caused it */
    _Atomic uint32_t n_open;      /* gate, in card 0 */
    _Atomic uint32_t failed_rank; /* gate, in card 0: rank + 1 of the first that can not go on */
    uint8_t record[TUTTI_CARD_RECORD_BYTES];
};
_Static_assert(sizeof(struct card) <= TUTTI_CARD_BYTES, "a card has a fixed size");

static struct card *card_of(struct tutti_segment *segment, uint32_t member)
{
    return tutti_segment_card(segment, member);
}

void tutti_card_expect(struct tutti_segment *segment, uint32_t member, int32_t pid)
{
    struct card *card = card_of(segment, member);
    atomic_store(&card->pid_namespace, tutti_process_namespace());
    atomic_store(&card->pid, pid);
}

void tutti_card_fail(struct tutti_segment *segment, uint32_t member, const struct tutti_error *why)
{
    struct card *gate = card_of(segment, 0), *card = card_of(segment, member);
    uint32_t nobody = 0, claim = UINT32_MAX;
    /* The first one claims, writes, then tells; the others keep quiet. */
    if (!atomic_compare_exchange_strong(&gate->failed_rank, &nobody, claim)) return;
    snprintf(card->trouble, sizeof card->trouble, "%.83s", why->text);
    card->trouble_status = why->status;
    card->trouble_peer = why->peer;
    atomic_store(&gate->failed_rank, member + 1);
    tutti_futex_wake(&gate->n_open, INT_MAX);
}

static enum tutti_status failure_check(struct tutti_segment *segment, uint32_t n)
{
    uint32_t failed = atomic_load(&card_of(segment, 0)->failed_rank);
    if (failed == 0 || failed > n) return TUTTI_OK;
    const struct card *card = card_of(segment, failed - 1);
    int length = (int)sizeof card->trouble - 1;
    struct tutti_error error;
    if (card->trouble_status == TUTTI_ERR_PEER_DEAD)
        tutti_error_set(&error, TUTTI_ERR_PEER_DEAD, "%.*s", length, card->trouble);
    else
        tutti_error_set(&error, TUTTI_ERR_BOOTSTRAP, "rank %u can not go on: %.*s", failed - 1, length, card->trouble);
    error.peer = card->trouble_status == TUTTI_ERR_PEER_DEAD ? card->trouble_peer : (int32_t)(failed - 1);
    return tutti_fail_record(&error);
}

/* ---- arriving ---- */

/* When the process of a rank began, 0 where that is not known: only what a rank has written says so. */
static uint64_t start_of(const struct card *card)
{
    struct tutti_card_record record;
    return tutti_card_decode(card->record, &record) ? record.start : 0;
}

/* A member whose process is gone before it has arrived, or before all have opened. */
static enum tutti_status deaths_check(struct tutti_segment *segment, uint32_t n, bool opening)
{
    const int32_t own = (int32_t)getpid();
    const uint64_t own_namespace = tutti_process_namespace();
    for (uint32_t rank = 0; rank < n; rank++) {
        const struct card *card = card_of(segment, rank);
        const int32_t pid = atomic_load(&card->pid);
        if (pid <= 0 || atomic_load(&card->pid_namespace) != own_namespace) continue; /* nobody here knows */
        if (pid == own || (!opening && tutti_segment_arrived(segment, rank))) continue;
        if (tutti_process_alive(pid, opening ? start_of(card) : 0)) continue;
        /* A member that has seen all open may be done and gone already; one that could not go on has said why. */
        if (opening && atomic_load(&card_of(segment, 0)->n_open) >= n) return TUTTI_OK;
        TUTTI_TRY(failure_check(segment, n));
        return tutti_meeting_fail_dead((int32_t)rank, pid);
    }
    return TUTTI_OK;
}

static bool is_here(const void *arg, uint32_t rank)
{
    return tutti_segment_arrived((struct tutti_segment *)(uintptr_t)arg, rank);
}

static enum tutti_status missing_fail(struct tutti_segment *segment, uint32_t n,
                                      const struct tutti_meeting_request *request)
{
    char missing[160];
    tutti_meeting_missing_text(n, is_here, segment, missing, sizeof missing);
    return tutti_fail(TUTTI_ERR_TIMEOUT, "%s did not arrive: " TUTTI_SAYS_TIMED_OUT, missing,
                      tutti_meeting_patience(request));
}

static enum tutti_status arrivals_wait(struct tutti_segment *segment, const struct tutti_meeting_request *request)
{
    uint32_t n = (uint32_t)request->n_ranks;
    for (;;) {
        uint64_t slice = tutti_deadline_ns(SLICE_NS);
        bool last = slice >= request->deadline_ns;
        if (tutti_segment_wait_all(segment, last ? request->deadline_ns : slice) == TUTTI_OK) return TUTTI_OK;
        TUTTI_TRY(failure_check(segment, n));
        TUTTI_TRY(deaths_check(segment, n, false));
        if (tutti_meeting_cancelled(request)) return tutti_meeting_time(request, "the other ranks");
        if (last) return missing_fail(segment, n, request);
    }
}

/* ---- comparing ---- */

static bool card_read(const void *arg, uint32_t rank, struct tutti_card_record *out)
{
    return tutti_card_decode(card_of((struct tutti_segment *)(uintptr_t)arg, rank)->record, out);
}

enum tutti_status tutti_card_exchange(struct tutti_segment *segment, const struct tutti_meeting_request *request,
                                      struct tutti_cpu_place *places, struct tutti_world_facts *out)
{
    const uint32_t n = (uint32_t)request->n_ranks;
    struct card *card = card_of(segment, (uint32_t)request->rank);
    tutti_card_encode(request->card, card->record);
    atomic_store(&card->pid_namespace, tutti_process_namespace());
    atomic_store(&card->pid, request->card->pid);
    tutti_segment_arrive(segment, (uint32_t)request->rank);
    TUTTI_TRY(arrivals_wait(segment, request));
    return tutti_world_facts_read(request->card, n, card_read, segment, places, out);
}

enum tutti_status tutti_card_wait_open(struct tutti_segment *segment, const struct tutti_meeting_request *request)
{
    struct card *gate = card_of(segment, 0);
    uint32_t n = (uint32_t)request->n_ranks, open = atomic_fetch_add(&gate->n_open, 1) + 1;
    if (open >= n) tutti_futex_wake(&gate->n_open, INT_MAX);
    while ((open = atomic_load(&gate->n_open)) < n) {
        TUTTI_TRY(failure_check(segment, n));
        TUTTI_TRY(deaths_check(segment, n, true));
        TUTTI_TRY(tutti_meeting_time(request, "the other ranks to open their transports"));
        uint64_t slice = tutti_deadline_ns(SLICE_NS);
        tutti_futex_wait(&gate->n_open, open, slice < request->deadline_ns ? slice : request->deadline_ns);
    }
    return TUTTI_OK;
}
