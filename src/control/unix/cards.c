/* SPDX-License-Identifier: BSD-3-Clause */

/* The table of cards in the segment: each rank writes its record once, and reads those of all. Every rank compares
 * every record with its own, so that either all of them go on or each of them knows which option differs. Beside the
 * record a card says who can not go on; card 0 also holds the gate: how many have opened their transport, and who
 * failed. */

#include "control/machine/card.h"
#include "control/unix/meeting.h"
#include "transport/host/segment.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLICE_NS (200 * TUTTI_NS_PER_MS) /* between looks at who died */

struct card {
    _Atomic int32_t pid; /* the leader's knowledge, then the rank's own */
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

/* 0 when it can not be told. */
static uint64_t namespace_id(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (uint64_t)info.st_ino : 0;
}

uint64_t tutti_host_id(void)
{
    struct {
        char boot[40];
        uint64_t network, processes;
    } id;
    memset(&id, 0, sizeof id);
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!f || !fgets(id.boot, sizeof id.boot, f)) gethostname(id.boot, sizeof id.boot - 1);
    if (f) fclose(f);
    id.network = namespace_id("/proc/self/ns/net");
    id.processes = namespace_id("/proc/self/ns/pid");
    return tutti_hash64(&id, sizeof id, 0);
}

void tutti_card_expect(struct tutti_segment *segment, uint32_t member, int32_t pid)
{
    atomic_store(&card_of(segment, member)->pid, pid);
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

static enum tutti_status record_fill(struct tutti_card_record *record, const struct tutti_meeting_request *request,
                                     const struct tutti_config *config)
{
    memset(record, 0, sizeof *record);
    record->pid = (int32_t)getpid();
    record->uid = (uint32_t)geteuid();
    record->cpus = tutti_cpus_allowed();
    record->start = tutti_meeting_started(NULL, record->pid);
    record->build = request->build, record->host = request->host;
    record->config_hash = tutti_config_hash(config);
    record->crowded = request->crowded;
    record->decorated = config->text[TUTTI_OPT_decorators][0] != '\0';
    record->device = request->device;
    snprintf(record->version, sizeof record->version, "%s", request->version);
    memcpy(record->machine, request->machine ? request->machine : &tutti_machine_default, sizeof record->machine);
    tutti_config_agreed_text(config, record->agreed, sizeof record->agreed);
    return place_fill(record);
}

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
    for (uint32_t rank = 0; rank < n; rank++) {
        const struct card *card = card_of(segment, rank);
        const int32_t pid = atomic_load(&card->pid);
        if (pid == own || (!opening && tutti_segment_arrived(segment, rank))) continue;
        if (tutti_process_alive(pid, opening ? start_of(card) : 0)) continue;
        /* Who has seen all open may be done and gone already; who could not go on has said why. */
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
    if (theirs->host != mine->host || theirs->uid != mine->uid)
        return tutti_fail(TUTTI_ERR_CONFIG, "rank %u runs on another host or as another user than this rank", rank);
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

/* What follows from all records; allowances is memory for n. */
static enum tutti_status facts_read(struct tutti_segment *segment, uint32_t n, const struct tutti_card_record *mine,
                                    struct tutti_allowance *allowances, struct tutti_card_facts *out)
{
    struct tutti_card_record record;
    uint32_t min_cpus = UINT32_MAX;
    for (uint32_t rank = 0; rank < n; rank++) {
        if (!tutti_card_decode(card_of(segment, rank)->record, &record))
            return tutti_fail(TUTTI_ERR_PROTOCOL, "rank %u wrote nonsense where it should say what it is", rank);
        TUTTI_TRY(record_compare(mine, &record, rank));
        if (record.cpus < min_cpus) min_cpus = record.cpus;
        memcpy(allowances[rank].cpus.words, record.cpu_words, sizeof record.cpu_words);
        allowances[rank].payer = record.payer, allowances[rank].quota = record.quota;
        memcpy(out->places[rank].group, record.group, sizeof record.group);
        out->crowded = out->crowded || record.crowded;
        out->decorated = out->decorated || record.decorated;
        out->devices = out->devices || record.device;
        if (rank == 0) memcpy(&out->machine, record.machine, sizeof out->machine);
    }
    out->min_cpus = min_cpus ? min_cpus : 1;
    out->n_cpus = cpus_together(allowances, n);
    out->crowded = out->crowded || tutti_topo_crowded(allowances, sizeof *allowances, n);
    return TUTTI_OK;
}

enum tutti_status tutti_card_exchange(struct tutti_segment *segment, const struct tutti_meeting_request *request,
                                      const struct tutti_config *config, struct tutti_card_facts *out)
{
    const uint32_t n = (uint32_t)request->n_ranks;
    struct card *card = card_of(segment, (uint32_t)request->rank);
    struct tutti_card_record mine;
    TUTTI_TRY(record_fill(&mine, request, config));
    tutti_card_encode(&mine, card->record);
    atomic_store(&card->pid, mine.pid);
    tutti_segment_arrive(segment, (uint32_t)request->rank);
    TUTTI_TRY(arrivals_wait(segment, request));
    struct tutti_allowance *allowances = tutti_alloc_array(n, sizeof *allowances);
    if (!allowances) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the cards of %u ranks", n);
    enum tutti_status status = facts_read(segment, n, &mine, allowances, out);
    tutti_free(allowances);
    return status;
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
