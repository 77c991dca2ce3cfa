/* SPDX-License-Identifier: BSD-3-Clause */
/* A team: a communicator that survives, quorums that are asked for beside training, and votes in which all members take
 * newcomers in. The thread of quorums makes communicators, one of which is ready at a time; with each vote a rank says
 * which one it has, and when all have the same, all take it as the next step begins. It is made of public calls alone.
 * tutti_torch/ft/survival.py does the same in Python. */
#include "ft/client/client.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <tutti/coll.h>

#define MEET_NS (10 * TUTTI_NS_PER_S) /* all hear of a quorum at one time */
#define MORE_NS TUTTI_NS_PER_MS       /* a pause between questions is so much longer for each member */
enum { N_TOLD = 4, MEETINGS = 8 /* at a time */ };

/* A communicator that can be taken. */
struct candidate {
    struct tutti_comm *comm;
    struct tutti_store store; /* where its members met */
    int64_t quorum_id;
    int64_t number; /* what number_of makes of the quorum */
    uint32_t n;
    char **names; /* its groups' */
};

struct tutti_ft_team {
    struct tutti_ft_team_config config;
    char *secret;
    struct tutti_ft_client *client;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock: */
    bool stops;
    int64_t step, failures, heard; /* failures in a row; the number of the last one that is made, or need not be */
    uint32_t n_meetings;           /* under way */
    uint32_t n_members;            /* the last one taken has so many, the dead included */
    struct candidate *ready, *voted, *next, *taken; /* voted: a vote says that it is ready; next: all have */
    struct tutti_error why;                         /* there is no quorum */
    /* The training thread's: */
    uint32_t size; /* members of the last one taken, the dead included */
    uint32_t n_alive, n_behind;
    int32_t *alive, *behind;
    int64_t *words; /* for tables of all members */
};

/* ---- candidates ---- */
static void candidate_drop(struct candidate *c)
{
    if (!c) return;
    tutti_comm_destroy(c->comm);
    if (c->store.ops) tutti_store_close(&c->store);
    for (uint32_t i = 0; c->names && i < c->n; i++) tutti_free(c->names[i]);
    tutti_free(c->names);
    tutti_free(c);
}

static bool has_name(const struct candidate *c, const char *name)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (strcmp(c->names[i], name) == 0) return true;
    return false;
}

static bool holds(const struct candidate *c, const struct tutti_ft_place *place)
{
    for (uint32_t i = 0; c && i < place->n_replicas; i++)
        if (!has_name(c, place->replica_ids[i])) return false;
    return c != NULL;
}

/* The same at all ranks of all groups: made of the quorum and its groups, for a lighthouse that begins anew may give
 * the quorum's number again. */
static int64_t number_of(const struct tutti_ft_place *place)
{
    uint64_t number = (uint64_t)place->quorum_id;

    for (uint32_t i = 0; i < place->n_replicas; i++)
        number = tutti_hash64(place->replica_ids[i], strlen(place->replica_ids[i]), number);
    return (int64_t)(number >> 2) + 1;
}

static enum tutti_status meet(struct tutti_ft_team *team, const struct tutti_ft_place *place, struct candidate *c)
{
    const uint64_t timeout_ns = team->config.timeout_ns < MEET_NS ? team->config.timeout_ns : MEET_NS;
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    char address[300], name[64];

    c->names = tutti_alloc_array(place->n_replicas, sizeof(*c->names));
    if (!c->names) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a team of %" PRIu32 " groups", place->n_replicas);
    for (; c->n < place->n_replicas; c->n++) {
        c->names[c->n] = tutti_text_copy(place->replica_ids[c->n]);
        if (!c->names[c->n]) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the name of a group");
    }
    c->quorum_id = place->quorum_id;
    snprintf(address, sizeof address, "tcp://%s", place->store_address);
    snprintf(name, sizeof name, "team-%" PRId64 "-%" PRIu32, c->number, team->config.group_rank);
    TUTTI_TRY(tutti_store_open(address, team->secret, tutti_deadline_ns(timeout_ns), &c->store));
    config.rank = (int32_t)place->replica_rank;
    config.n_ranks = (int32_t)place->replica_world_size;
    config.store = &c->store;
    config.name = name;
    config.secret = team->secret;
    config.timeout_ns = timeout_ns;
    config.survive = 1;
    TUTTI_TRY(tutti_comm_create(team->config.context, &config, &c->comm));
    tutti_comm_set_timeout(c->comm, team->config.timeout_ns);
    return TUTTI_OK;
}

/* ---- quorums, beside training ---- */

/* The lock is held. */
static void drop_ready(struct tutti_ft_team *team)
{
    struct candidate *ready = team->ready;

    team->ready = NULL;
    if (ready == team->voted) return; /* the vote drops it */
    candidate_drop(ready);
}

/* Whether a communicator has to be made for it: it is the last one heard of then. */
static bool is_new(struct tutti_ft_team *team, const struct tutti_ft_place *place)
{
    pthread_mutex_lock(&team->lock);
    const bool in_use = holds(team->taken ? team->taken : team->next, place);
    const bool served = (in_use || holds(team->ready, place)) && place->commit_failures == 0;
    const int64_t number = number_of(place);
    const bool heard = number == team->heard, found = !heard && !served && team->n_meetings < MEETINGS;
    if (!heard && served && in_use) drop_ready(team);
    if (found || (!heard && served && in_use)) team->heard = number;
    team->n_meetings += found;
    pthread_mutex_unlock(&team->lock);
    return found;
}

struct meeting {
    struct tutti_ft_team *team;
    struct tutti_ft_place *place;
    struct candidate *made;
};

/* The communicator is ready, unless another quorum was heard of meanwhile. */
static void *hold_meeting(void *arg)
{
    struct meeting *m = arg;
    struct tutti_ft_team *team = m->team;
    const enum tutti_status status = meet(team, m->place, m->made);

    pthread_mutex_lock(&team->lock);
    const bool wanted = team->heard == m->made->number && !team->stops;
    if (status < 0) {
        team->why = *tutti_last_error();
        team->failures += wanted;
    } else if (wanted) {
        drop_ready(team);
        team->ready = m->made;
        team->failures = 0;
    }
    pthread_mutex_unlock(&team->lock);
    if (status < 0 || !wanted) candidate_drop(m->made);
    tutti_ft_place_free(m->place);
    tutti_free(m);
    pthread_mutex_lock(&team->lock);
    team->n_meetings--;
    pthread_cond_broadcast(&team->changed);
    pthread_mutex_unlock(&team->lock);
    return NULL;
}

/* On a thread of its own: where members of this quorum do not come, the next one is heard of meanwhile. */
static enum tutti_status start_meeting(struct tutti_ft_team *team, struct tutti_ft_place *place)
{
    struct meeting *m = tutti_alloc(sizeof(*m));
    struct candidate *c = tutti_alloc(sizeof(*c));
    pthread_t thread;
    int error = ENOMEM;

    if (m && c) {
        *m = (struct meeting){team, place, c};
        c->number = number_of(place);
        error = tutti_thread_start(&thread, 0, hold_meeting, m);
    }
    if (error == 0) {
        pthread_detach(thread); /* close waits until there is none */
        return TUTTI_OK;
    }
    tutti_free(m), tutti_free(c);
    tutti_ft_place_free(place);
    pthread_mutex_lock(&team->lock);
    team->n_meetings--;
    team->failures++;
    pthread_mutex_unlock(&team->lock);
    return tutti_fail(TUTTI_ERR_SYSTEM, "no thread to meet the members of a quorum: %s", strerror(error));
}

/* Takes the place over. */
static enum tutti_status hear(struct tutti_ft_team *team, struct tutti_ft_place *place)
{
    const bool has_names = place->n_replicas == place->replica_world_size;

    if (has_names && is_new(team, place)) return start_meeting(team, place);
    tutti_ft_place_free(place);
    if (has_names) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                      "the manager does not tell the names of the groups: a team needs tutti's in all groups");
}

static enum tutti_status ask(struct tutti_ft_team *team, uint64_t *every_ns)
{
    struct tutti_ft_request request = {.group_rank = team->config.group_rank, .init_sync = true};
    struct tutti_ft_place *place;

    pthread_mutex_lock(&team->lock);
    request.step = team->step;
    request.commit_failures = team->failures;
    *every_ns = team->config.every_ns + team->n_members * MORE_NS;
    pthread_mutex_unlock(&team->lock);
    TUTTI_TRY(tutti_ft_client_quorum(team->client, &request, team->config.timeout_ns, &place));
    return hear(team, place);
}

/* The lock is held; TUTTI_NEVER waits as long as it takes. */
static void wait_changed(struct tutti_ft_team *team, uint64_t until_ns)
{
    const struct timespec at = {.tv_sec = (time_t)(until_ns / TUTTI_NS_PER_S),
                                .tv_nsec = (long)(until_ns % TUTTI_NS_PER_S)};

    pthread_cond_timedwait(&team->changed, &team->lock, &at);
}

static void *follow(void *arg)
{
    struct tutti_ft_team *team = arg;
    uint64_t every_ns;

    pthread_mutex_lock(&team->lock);
    while (!team->stops) {
        pthread_mutex_unlock(&team->lock);
        const enum tutti_status status = ask(team, &every_ns);
        const uint64_t until_ns = tutti_deadline_ns(every_ns);
        pthread_mutex_lock(&team->lock);
        if (status < 0) team->why = *tutti_last_error();
        while (!team->stops && tutti_now_ns() < until_ns) wait_changed(team, until_ns);
    }
    pthread_mutex_unlock(&team->lock);
    return NULL;
}

/* ---- votes ---- */

/* The members that are in the last call, which blocked. */
static enum tutti_status note_alive(struct tutti_ft_team *team)
{
    size_t n = 0;

    TUTTI_TRY(tutti_work_contributors(NULL, team->taken->comm, team->alive, team->size, &n));
    team->n_alive = (uint32_t)n;
    return TUTTI_OK;
}

/* What the ranks of the group heard, as one: the most of each word, and the members that none of them lacks. */
static enum tutti_status tell_inside(struct tutti_ft_team *team, int64_t told[N_TOLD])
{
    int64_t *lacks = team->words + N_TOLD;
    uint32_t n = 0;

    if (!team->config.inside) return TUTTI_OK;
    memcpy(team->words, told, N_TOLD * sizeof(*told));
    for (uint32_t i = 0; i < team->size; i++) lacks[i] = 1;
    for (uint32_t i = 0; i < team->n_alive; i++) lacks[team->alive[i]] = 0;
    TUTTI_TRY(tutti_all_reduce(team->words, team->words, N_TOLD + team->size, TUTTI_INT64, TUTTI_MAX,
                               team->config.inside, NULL, NULL));
    memcpy(told, team->words, N_TOLD * sizeof(*told));
    for (uint32_t i = 0; i < team->n_alive; i++)
        if (!lacks[team->alive[i]]) team->alive[n++] = team->alive[i];
    team->n_alive = n;
    return TUTTI_OK;
}

struct vote {
    bool failed, left; /* somebody has; a rank of this group can not go on */
};

static enum tutti_status vote(struct tutti_ft_team *team, bool failed, bool leaves, struct vote *out)
{
    pthread_mutex_lock(&team->lock);
    struct candidate *voted = team->voted = team->next ? NULL : team->ready;
    pthread_mutex_unlock(&team->lock);
    const int64_t number = voted ? voted->number : 0;
    int64_t told[N_TOLD] = {failed, -number, number, 0};
    leaves = leaves || !team->taken ||
             tutti_all_reduce(told, told, N_TOLD, TUTTI_INT64, TUTTI_MAX, team->taken->comm, NULL, NULL) < 0 ||
             note_alive(team) < 0;
    told[3] = leaves;
    const enum tutti_status status = tell_inside(team, told);
    const bool all = status >= 0 && voted && !told[3] && told[1] == -told[2];
    pthread_mutex_lock(&team->lock);
    team->voted = NULL;
    if (all) team->next = voted;
    const bool was_replaced = team->ready != voted;
    if (all && !was_replaced) team->ready = NULL;
    pthread_mutex_unlock(&team->lock);
    if (voted && was_replaced && !all) candidate_drop(voted);
    *out = (struct vote){.failed = told[0] != 0, .left = told[3] != 0};
    return status;
}

void tutti_ft_team_leave(struct tutti_ft_team *team)
{
    if (!team) return;
    pthread_mutex_lock(&team->lock);
    struct candidate *taken = team->taken;
    team->taken = NULL;
    team->failures++; /* so that the next quorum makes a new communicator */
    pthread_mutex_unlock(&team->lock);
    team->n_alive = team->n_behind = 0;
    candidate_drop(taken);
}

/* ---- a communicator is taken ---- */
static enum tutti_status grow(struct tutti_ft_team *team, uint32_t size)
{
    if (size <= team->size) return TUTTI_OK;
    int32_t *alive = tutti_alloc_array(size, sizeof(*alive)), *behind = tutti_alloc_array(size, sizeof(*behind));
    int64_t *words = tutti_alloc_array(N_TOLD + (size_t)size, sizeof(*words));
    if (!alive || !behind || !words) {
        tutti_free(alive), tutti_free(behind), tutti_free(words);
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a team of %" PRIu32 " groups", size);
    }
    tutti_free(team->alive), tutti_free(team->behind), tutti_free(team->words);
    team->alive = alive, team->behind = behind, team->words = words;
    return TUTTI_OK;
}

/* Those who need the state, by what each member said: at step 0 all but the first. */
static void sort_out(struct tutti_ft_team *team, struct tutti_ft_step *out)
{
    int64_t newest = 0;

    out->source = -1;
    team->n_behind = 0;
    for (uint32_t i = 0; i < team->n_alive; i++)
        if (team->words[team->alive[i]] > newest) newest = team->words[team->alive[i]];
    for (uint32_t i = 0; i < team->n_alive; i++) {
        const int32_t rank = team->alive[i];
        if (team->words[rank] == newest && (newest > 0 || out->source < 0)) {
            if (out->source < 0) out->source = rank;
        } else {
            team->behind[team->n_behind++] = rank;
        }
    }
    if (out->source < 0) team->n_behind = 0; /* nobody has one */
    if (team->n_behind == 0) out->source = -1;
    out->step = newest;
}

/* By all members at once. PENDING: it is of no use, or a newcomer does not find all of them there: this rank asks
 * again. */
static enum tutti_status take(struct tutti_ft_team *team, int64_t step, struct tutti_ft_step *out)
{
    pthread_mutex_lock(&team->lock);
    struct candidate *before = team->taken, *c = team->next ? team->next : team->ready;
    if (c == team->ready) team->ready = NULL;
    team->next = NULL;
    team->taken = c;
    team->n_members = c->n;
    pthread_mutex_unlock(&team->lock);
    const uint32_t size = (uint32_t)tutti_comm_size(c->comm);
    enum tutti_status status = grow(team, size);
    if (status >= 0) team->size = size;
    if (status >= 0) status = tutti_all_gather(&step, team->words, 1, TUTTI_INT64, c->comm, NULL, NULL);
    if (status >= 0) status = note_alive(team);
    candidate_drop(before); /* nobody is in a call of it any more */
    const bool is_newcomer = !before;
    if (status >= 0 && is_newcomer && team->n_alive < size) status = TUTTI_PENDING;
    if (status != TUTTI_OK) {
        tutti_ft_team_leave(team);
        return status == TUTTI_ERR_MEMORY ? status : TUTTI_PENDING;
    }
    out->taken = true;
    sort_out(team, out);
    return TUTTI_OK;
}

/* ---- steps ---- */

/* Not before the first step: who asks for a quorum is waited for by the others. */
static enum tutti_status start(struct tutti_ft_team *team, int64_t step)
{
    if (team->has_thread) return TUTTI_OK;
    team->step = step;
    const int error = tutti_thread_start(&team->thread, 0, follow, team);
    team->has_thread = error == 0;
    return error ? tutti_fail(TUTTI_ERR_SYSTEM, "no thread for a team: %s", strerror(error)) : TUTTI_OK;
}

/* Until there is a communicator to take. */
static enum tutti_status await_ready(struct tutti_ft_team *team, uint64_t until_ns)
{
    pthread_mutex_lock(&team->lock);
    while (!team->ready && tutti_now_ns() < until_ns) wait_changed(team, until_ns);
    const bool is_ready = team->ready != NULL;
    const struct tutti_error why = team->why;
    pthread_mutex_unlock(&team->lock);
    if (is_ready) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_TIMEOUT, "ft_team_begin timed out: there is no quorum: %s",
                      why.status < 0 ? why.text : "the other groups have not asked");
}

/* All survivors are in this, and vote in the same order. */
static enum tutti_status await_enough(struct tutti_ft_team *team, uint64_t until_ns)
{
    struct vote heard;
    bool told = false;

    while (team->taken && !team->next && team->n_alive < team->config.min_replicas) {
        if (!told)
            tutti_log(TUTTI_LOG_WARN,
                      "groups left: %" PRIu32 ", of at least %" PRIu32 "; no step counts until others have come",
                      team->n_alive, team->config.min_replicas);
        told = true;
        pthread_mutex_lock(&team->lock);
        const uint64_t pause_ns = tutti_deadline_ns(team->config.every_ns);
        while (!team->ready && tutti_now_ns() < pause_ns) wait_changed(team, pause_ns);
        pthread_mutex_unlock(&team->lock);
        if (tutti_now_ns() > until_ns) return await_ready(team, 0);
        TUTTI_TRY(vote(team, false, false, &heard));
        if (heard.left) tutti_ft_team_leave(team);
    }
    return TUTTI_OK;
}

enum tutti_status tutti_ft_team_begin(struct tutti_ft_team *team, int64_t step, struct tutti_ft_step *out)
{
    struct tutti_ft_step begun = {.step = step, .source = -1};

    if (!team || !out) return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_team_begin: %s is NULL", team ? "out" : "team");
    const uint64_t until_ns = tutti_deadline_ns(team->config.timeout_ns);
    team->n_behind = 0;
    TUTTI_TRY(start(team, step));
    TUTTI_TRY(await_enough(team, until_ns));
    enum tutti_status status = team->taken && team->next ? take(team, step, &begun) : TUTTI_PENDING;
    while (!team->taken && status == TUTTI_PENDING) {
        TUTTI_TRY(await_ready(team, until_ns));
        status = take(team, step, &begun);
    }
    if (status < 0) return status;
    begun.comm = team->taken->comm;
    begun.quorum_id = team->taken->quorum_id;
    begun.n_alive = team->n_alive, begun.alive = team->alive;
    begun.n_behind = team->n_behind, begun.behind = team->behind;
    for (uint32_t i = 0; i < team->n_behind; i++) begun.heals |= team->behind[i] == tutti_comm_rank(begun.comm);
    pthread_mutex_lock(&team->lock);
    team->step = begun.step;
    pthread_mutex_unlock(&team->lock);
    *out = begun;
    return TUTTI_OK;
}

enum tutti_status tutti_ft_team_commit(struct tutti_ft_team *team, bool failed, bool *commit)
{
    struct vote heard;

    if (!team || !commit) return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_team_commit: %s is NULL", team ? "commit" : "team");
    if (!team->words)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_team_commit: there is no step: ft_team_begin comes before it");
    const enum tutti_status status = vote(team, failed, false, &heard);
    if (status < 0 || heard.left) tutti_ft_team_leave(team);
    if (status < 0) return status;
    *commit = !heard.failed && !heard.left && team->n_alive >= team->config.min_replicas;
    const enum tutti_status told =
        tutti_ft_client_progress(team->client, team->config.group_rank, team->step + *commit, 0);
    (void)told; /* for those who look */
    return TUTTI_OK;
}

/* ---- its life ---- */
static enum tutti_status check(const struct tutti_ft_team_config *config)
{
    if (!config->manager) return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_team_open: config.manager is NULL");
    if (config->min_replicas == 0)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_team_open: config.min_replicas is 0: at least one must take part");
    if (config->timeout_ns == 0 || config->every_ns == 0)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_team_open: config.%s is 0",
                          config->timeout_ns == 0 ? "timeout_ns" : "every_ns");
    return TUTTI_OK;
}

enum tutti_status tutti_ft_team_open(const struct tutti_ft_team_config *config, struct tutti_ft_team **out)
{
    pthread_condattr_t monotonic;

    if (!config || !out) return tutti_fail(TUTTI_ERR_ARGUMENT, "ft_team_open: %s is NULL", config ? "out" : "config");
    TUTTI_TRY(check(config));
    struct tutti_ft_team *team = tutti_alloc(sizeof(*team));
    if (!team) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a team");
    team->config = *config;
    team->heard = -1;
    pthread_mutex_init(&team->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&team->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    enum tutti_status status = TUTTI_OK;
    if (config->secret && !(team->secret = tutti_text_copy(config->secret)))
        status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for a secret");
    if (status >= 0) status = tutti_ft_client_open(config->manager, config->timeout_ns, &team->client);
    if (status < 0)
        tutti_ft_team_close(team);
    else
        *out = team;
    return status;
}

void tutti_ft_team_close(struct tutti_ft_team *team)
{
    if (!team) return;
    const struct tutti_error why = *tutti_last_error();
    pthread_mutex_lock(&team->lock);
    team->stops = true;
    pthread_cond_broadcast(&team->changed);
    pthread_mutex_unlock(&team->lock);
    if (team->has_thread) {
        client_cancel(team->client);
        pthread_join(team->thread, NULL);
    }
    tutti_ft_client_close(team->client);
    pthread_mutex_lock(&team->lock);
    while (team->n_meetings > 0) pthread_cond_wait(&team->changed, &team->lock); /* which have deadlines */
    pthread_mutex_unlock(&team->lock);
    candidate_drop(team->ready);
    candidate_drop(team->next);
    candidate_drop(team->taken);
    pthread_cond_destroy(&team->changed);
    pthread_mutex_destroy(&team->lock);
    if (team->secret) explicit_bzero(team->secret, strlen(team->secret));
    tutti_free(team->secret);
    tutti_free(team->alive), tutti_free(team->behind), tutti_free(team->words);
    tutti_free(team);
    if (why.status < 0) tutti_fail_record(&why);
}
