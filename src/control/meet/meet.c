/* SPDX-License-Identifier: BSD-3-Clause */

/* Where ranks meet, and the election: whoever binds the place leads, the others come to him; when he goes before the
 * meeting is over, it starts again. Without a store the place is derived from uid, job and name. With a store the
 * leader of a round publishes it, and the round's number says which meeting it is. */

#include "control/meet/meeting.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BACKOFF_MIN_NS (TUTTI_NS_PER_MS)
#define BACKOFF_MAX_NS (50 * TUTTI_NS_PER_MS)
#define DEAF_NS (3 * TUTTI_NS_PER_S)    /* a place that is bound but does not answer for so long is left alone */
#define N_PLACES 4                      /* that are tried in turn when one is deaf, or held by another user */
#define CERTIFY_NS (5 * TUTTI_NS_PER_S) /* that both ends of a connection may take to prove themselves */
#define PUBLISH_NS (5 * TUTTI_NS_PER_S) /* that the leader of a round may take to publish its place */

/* Sleeps a little, longer each time; not beyond the deadline, and no two ranks in step. */
static void back_off(uint64_t *pause_ns, const struct tutti_meeting_request *request)
{
    uint64_t now = tutti_now_ns(), seed = now ^ (uint64_t)request->rank << 32;
    uint64_t pause = *pause_ns / 2 + tutti_random64(&seed) % *pause_ns;
    if (now + pause > request->deadline_ns) pause = request->deadline_ns > now ? request->deadline_ns - now : 0;
    tutti_sleep_ns(pause);
    *pause_ns = *pause_ns * 2 < BACKOFF_MAX_NS ? *pause_ns * 2 : BACKOFF_MAX_NS;
}

/* Comes to a place that another process holds: the leader, or a rank that passes on. AGAIN: nobody is there (*answered
 * is false), or it went. */
static enum tutti_status come_to(const char *place, int32_t relay, const struct tutti_meeting_request *request,
                                 bool *answered, struct tutti_meeting_result *out)
{
    int fd;
    enum tutti_status status = tutti_meeting_connect(place, &fd);
    *answered = status == TUTTI_OK || status == TUTTI_PENDING;
    if (status == TUTTI_PENDING) return TUTTI_AGAIN;
    return status == TUTTI_OK ? tutti_meeting_join(fd, relay, request, out) : status;
}

/* ---- without a store ---- */

void tutti_meeting_place(const char *job, const char *name, unsigned alternative, char out[TUTTI_MEETING_PLACE])
{
    uint64_t a = tutti_hash64(name, strlen(name), tutti_hash64(job, strlen(job), 1));
    uint64_t b = tutti_hash64(name, strlen(name), tutti_hash64(job, strlen(job), 2));
    snprintf(out, TUTTI_MEETING_PLACE, "tutti-%u-%016" PRIx64 "%016" PRIx64 "-%u", (unsigned)geteuid(), a, b,
             alternative);
}

/* Where to try next. Bound and deaf: a forked child of a leader that is gone still holds the name. Held by another uid:
 * somebody squats it. All ranks go on to the same next name. */
struct alternatives {
    unsigned current, n_changes;
    uint64_t deaf_since_ns;
};

/* True when the place is given up. connected: another process holds it; status: what came of going there. */
static bool place_give_up(struct alternatives *a, const char *place, bool connected, bool answered,
                          enum tutti_status status)
{
    uint64_t now = tutti_now_ns();
    bool squatted = connected && status == TUTTI_ERR_AUTH && tutti_last_error()->os_errno == EPERM;
    if (!connected || answered || a->deaf_since_ns == 0) a->deaf_since_ns = now;
    if (!squatted && now - a->deaf_since_ns < DEAF_NS) return false;
    if (a->n_changes++ < N_PLACES)
        tutti_log(TUTTI_LOG_WARN, "the meeting place @%s can not be used (%s); going on to the next", place,
                  squatted ? tutti_last_error()->text : "it is bound, but nobody answers");
    a->current = (a->current + 1) % N_PLACES;
    a->deaf_since_ns = 0;
    return true;
}

enum tutti_status tutti_meet(const char *job, const char *name, const struct tutti_meeting_request *request,
                             struct tutti_meeting_result *out)
{
    char place[TUTTI_MEETING_PLACE];
    struct alternatives alternatives = {.current = 0};
    uint64_t pause_ns = BACKOFF_MIN_NS;
    for (;;) {
        struct tutti_meeting *lead;
        bool elsewhere, answered = false;
        tutti_meeting_place(job, name, alternatives.current, place);
        enum tutti_status status = tutti_meeting_enter(place, request, &lead, &elsewhere, out);
        if (status == TUTTI_OK && lead) return tutti_meeting_lead(lead, NULL, NULL, out);
        if (status < 0) return status;
        bool connected = status == TUTTI_OK && elsewhere;
        if (connected) status = come_to(place, -1, request, &answered, out);
        if (status == TUTTI_OK) return status;
        if (!place_give_up(&alternatives, place, connected, answered, status) && status != TUTTI_AGAIN) return status;
        TUTTI_TRY(tutti_meeting_time(request, "a rank that leads the meeting"));
        back_off(&pause_ns, request);
    }
}

/* ---- with a store ---- */

/* Keys, under "tutti/<name>/": `round` counts the meetings that are over. Of a round: `hosts` numbers the ranks that
 * are the first of their host, and `gate/<number>` tells where on the network each can be reached; number 0 leads, the
 * others pass on to (number - 1) / 32. `<host>.<try>/claim` is 1 for such a rank, `<host>.<try>/place` tells the others
 * of its host where; when it is gone, the next try has another. `ended` is 1 for the rank that ends the round: the
 * leader, or whoever finds it dead. */
struct rounds {
    const struct tutti_store *store;
    const char *name;
    uint64_t host;
    int64_t round;
    unsigned try;
    bool doubt; /* a relay of this host went: it may live */
};

#define FAN_OUT 32

static void round_key(const struct rounds *r, const char *what, char out[TUTTI_STORE_KEY_MAX + 1])
{
    if (strcmp(what, "round") == 0)
        snprintf(out, TUTTI_STORE_KEY_MAX + 1, "tutti/%.160s/round", r->name);
    else if (strcmp(what, "claim") == 0 || strcmp(what, "place") == 0)
        snprintf(out, TUTTI_STORE_KEY_MAX + 1, "tutti/%.160s/%" PRId64 "/%016" PRIx64 ".%u/%s", r->name, r->round,
                 r->host, r->try, what);
    else
        snprintf(out, TUTTI_STORE_KEY_MAX + 1, "tutti/%.160s/%" PRId64 "/%s", r->name, r->round, what);
}

/* A store of the caller's gives a status, and no words: whether there are any shows where there were none before. What
 * went well leaves the record as it was. */
static struct tutti_error store_begin(void)
{
    const struct tutti_error before = *tutti_last_error(), none = {.status = TUTTI_OK};
    tutti_fail_record(&none);
    return before;
}

static enum tutti_status store_end(enum tutti_status status, const struct tutti_error *before, const char *what,
                                   const char *key)
{
    if (status >= 0) tutti_fail_record(before);
    if (status >= 0 || tutti_last_error()->status < 0) return status;
    return tutti_fail(status, "the store can not %s key %s: %s", what, key, tutti_status_text(status));
}

static enum tutti_status round_add(const struct rounds *r, const char *what, int64_t delta, int64_t *value)
{
    char key[TUTTI_STORE_KEY_MAX + 1];
    round_key(r, what, key);
    const struct tutti_error before = store_begin();
    return store_end(r->store->ops->add(r->store->self, key, delta, value), &before, "add to", key);
}

static enum tutti_status round_publish(const struct rounds *r, const char *what, const char *text)
{
    char key[TUTTI_STORE_KEY_MAX + 1];
    round_key(r, what, key);
    const struct tutti_error before = store_begin();
    return store_end(r->store->ops->set(r->store->self, key, text, strlen(text) + 1), &before, "set", key);
}

/* Waits for a text that somebody publishes; *last: at the deadline, else for PUBLISH_NS. TIMEOUT without a record. */
static enum tutti_status round_read(const struct rounds *r, const char *what,
                                    const struct tutti_meeting_request *request, char *text, size_t capacity,
                                    bool *last)
{
    char key[TUTTI_STORE_KEY_MAX + 1];
    const uint64_t publish = tutti_deadline_ns(PUBLISH_NS);
    size_t n = 0;
    round_key(r, what, key);
    *last = publish >= request->deadline_ns;
    memset(text, 0, capacity);
    const struct tutti_error before = store_begin();
    const enum tutti_status status =
        r->store->ops->get(r->store->self, key, text, capacity - 1, &n, *last ? request->deadline_ns : publish);
    return status == TUTTI_ERR_TIMEOUT ? status : store_end(status, &before, "get", key);
}

/* Ends the round, once: from now on newcomers belong to the next one. By its leader, and by members that find the
 * leader dead. */
static enum tutti_status round_end(const struct rounds *r)
{
    int64_t first, ignored;
    TUTTI_TRY(round_add(r, "ended", 1, &first));
    if (first != 1) return TUTTI_AGAIN;
    TUTTI_TRY(round_add(r, "round", 1, &ignored));
    return TUTTI_AGAIN;
}

/* The meeting itself does not depend on the store any more: an error is only logged. */
static void round_end_by_leader(void *arg)
{
    if (round_end(arg) < 0)
        tutti_log(TUTTI_LOG_WARN, "the store does not take that a meeting is over: %s", tutti_last_error()->text);
}

/* ---- the first rank of a host ---- */

/* The leader is on another host, and one of the two does not use the network. */
static enum tutti_status hosts_refuse(const struct rounds *r, const struct tutti_meeting_request *request)
{
    char text[128 + TUTTI_FAR_TEXT], host[64] = "?";
    bool last;
    if (round_read(r, "gate/0", request, text, sizeof text, &last) == TUTTI_OK) sscanf(text, "%63s", host);
    return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                      "rank %d is on host %s, and the rank that leads the meeting on host %s (or in another "
                      "container): %s",
                      (int)request->rank, request->card ? request->card->host_name : "?", host,
                      request->listener ? "that one does not connect hosts" : request->alone_because);
}

/* Both ends prove themselves by certificates, where this one has one. PENDING: it broke before. */
static enum tutti_status gate_certify(const struct tutti_meeting_request *request, const char *host, int fd,
                                      struct tutti_tls **out)
{
    const struct tutti_tls_proof proof = {.certificate = request->certificate};
    uint64_t until = tutti_deadline_ns(CERTIFY_NS);
    struct tutti_tls *tls;
    *out = NULL;
    if (!proof.certificate) return TUTTI_OK;
    TUTTI_TRY(tutti_tls_open(fd, true, &proof, &tls));
    if (until > request->deadline_ns) until = request->deadline_ns;
    const enum tutti_status status = tutti_tls_agree_by(tls, fd, until, request->cancel);
    if (status == TUTTI_OK) {
        *out = tls;
        return status;
    }
    const struct tutti_error error = *tutti_last_error();
    tutti_tls_close(tls);
    errno = ECONNABORTED;
    if (status != TUTTI_ERR_AUTH) return TUTTI_PENDING;
    return tutti_fail(status, "rank %d does not get into the meeting of the ranks on host %s: %.300s",
                      (int)request->rank, host, error.text);
}

/* Connects to the gate of this number. AGAIN: it is gone. PENDING: it is not reached. */
static enum tutti_status gate_connect(const struct rounds *r, const struct tutti_meeting_request *request,
                                      uint32_t number, int *fd, struct tutti_tls **tls)
{
    char what[32], text[128 + TUTTI_FAR_TEXT], host[64] = "?", far[TUTTI_FAR_TEXT] = "";
    bool last;
    snprintf(what, sizeof what, "gate/%u", number);
    enum tutti_status status = round_read(r, what, request, text, sizeof text, &last);
    if (status == TUTTI_ERR_TIMEOUT) return last ? TUTTI_PENDING : TUTTI_AGAIN;
    if (status < 0) return status;
    if (sscanf(text, "%63s %511s", host, far) < 1)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the store holds \"%.40s\", not a gate of a meeting", text);
    if (!far[0]) return hosts_refuse(r, request);
    status = tutti_far_connect(far, request, fd);
    if (status == TUTTI_OK && (status = gate_certify(request, host, *fd, tls)) != TUTTI_OK) close(*fd);
    if (status == TUTTI_PENDING)
        tutti_log(TUTTI_LOG_WARN, "rank %d does not reach the ranks that meet on host %s at %s: %s", (int)request->rank,
                  host, far, strerror(errno));
    return status;
}

/* A rank whose parent is gone goes to the one above it. */
static enum tutti_status round_pass_on(struct rounds *r, uint32_t number, struct tutti_meeting *meeting,
                                       struct tutti_meeting_result *out)
{
    const struct tutti_meeting_request *request = meeting->request;
    enum tutti_status status = request->listener ? TUTTI_AGAIN : hosts_refuse(r, request);
    while (status >= 0 && number > 0) {
        int fd = -1;
        struct tutti_tls *tls = NULL;
        number = (number - 1) / FAN_OUT;
        status = gate_connect(r, request, number, &fd, &tls);
        if (status == TUTTI_OK) return tutti_meeting_relay(meeting, fd, tls, out);
    }
    tutti_meeting_destroy(meeting);
    return status == TUTTI_AGAIN ? round_end(r) : status == TUTTI_PENDING ? TUTTI_AGAIN : status;
}

/* Says where the host's other ranks, and those of other hosts, find this one. */
static enum tutti_status round_place(struct rounds *r, const struct tutti_meeting_request *request,
                                     struct tutti_meeting *meeting, uint32_t *number)
{
    char far[TUTTI_FAR_TEXT] = "", text[TUTTI_MEETING_PLACE + 96 + TUTTI_FAR_TEXT], what[32];
    const struct tutti_listener_config config = {.interface = request->interface, .ports = request->ports};
    int64_t hosts, round;
    if (request->listener) {
        TUTTI_TRY(tutti_listener_open(&config, &meeting->listener));
        tutti_far_text(meeting->listener, far);
    }
    TUTTI_TRY(round_add(r, "hosts", 1, &hosts));
    *number = (uint32_t)(hosts - 1);
    snprintf(text, sizeof text, "%u %d %s", *number, (int)request->rank, meeting->place);
    TUTTI_TRY(round_publish(r, "place", text));
    snprintf(text, sizeof text, "%s %s", request->card ? request->card->host_name : "?", far);
    snprintf(what, sizeof what, "gate/%u", *number);
    TUTTI_TRY(round_publish(r, what, text));
    /* A rank that was slow to publish may have been taken for dead meanwhile. */
    TUTTI_TRY(round_add(r, "round", 0, &round));
    return round == r->round ? TUTTI_OK : TUTTI_AGAIN;
}

static enum tutti_status round_lead(struct rounds *r, const struct tutti_meeting_request *request,
                                    struct tutti_meeting_result *out)
{
    char place[TUTTI_MEETING_PLACE];
    uint64_t random;
    struct tutti_meeting *lead;
    bool elsewhere;
    uint32_t number;
    TUTTI_TRY(tutti_random_bytes(&random, sizeof random));
    snprintf(place, sizeof place, "tutti-%u-%016" PRIx64, (unsigned)geteuid(), random);
    TUTTI_TRY(tutti_meeting_enter(place, request, &lead, &elsewhere, out));
    if (!lead) return TUTTI_AGAIN; /* somebody guessed 64 random bits */
    const enum tutti_status status = round_place(r, request, lead, &number);
    if (status != TUTTI_OK) {
        tutti_meeting_destroy(lead);
        return status;
    }
    if (number > 0) return round_pass_on(r, number, lead, out);
    return tutti_meeting_lead(lead, round_end_by_leader, r, out);
}

/* ---- the others ---- */

/* The rank that claimed to be the first of this host is gone. */
static enum tutti_status round_retry(struct rounds *r, const struct tutti_meeting_request *request, uint32_t number)
{
    if (number == 0 || !request->listener) return round_end(r);
    r->try++;
    return TUTTI_AGAIN;
}

static enum tutti_status round_join(struct rounds *r, const struct tutti_meeting_request *request,
                                    struct tutti_meeting_result *out)
{
    char text[TUTTI_MEETING_PLACE + 96], place[TUTTI_MEETING_PLACE] = "";
    uint32_t number;
    int rank;
    struct tutti_meeting *lead;
    bool elsewhere, last, answered;
    enum tutti_status status = round_read(r, "place", request, text, sizeof text, &last);
    if (status == TUTTI_ERR_TIMEOUT) return last ? TUTTI_AGAIN : round_retry(r, request, UINT32_MAX);
    if (status < 0) return status;
    if (sscanf(text, "%u %d %107s", &number, &rank, place) != 3)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the store holds \"%.40s\", not a meeting place", text);
    if (number > 0 && !request->listener) return hosts_refuse(r, request);
    status = tutti_meeting_enter(place, request, &lead, &elsewhere, out);
    if (status == TUTTI_OK && lead) { /* the name was free: its owner is gone, and a leader here misleads nobody */
        tutti_meeting_destroy(lead);
        return round_retry(r, request, number);
    }
    if (status != TUTTI_OK || !elsewhere) return status;
    status = come_to(place, number > 0 ? rank : -1, request, &answered, out);
    r->doubt = number > 0;
    return status == TUTTI_AGAIN && !answered ? round_retry(r, request, number) : status;
}

/* A relay that lives withdrew, or lost its own way. */
static void loss_doubt(struct rounds *r, const struct tutti_meeting_request *request)
{
    struct tutti_meeting_loss *lost = request->lost;
    if (r->doubt && lost && lost->pid > 0 && tutti_meeting_alive(NULL, lost->pid, lost->start)) lost->pid = 0;
    r->doubt = false;
}

/* ---- hosts that do not talk ---- */

/* Ranks that have no secret find out before they meet whether they are of several hosts, so that none waits for those
 * that gave up. Keys of the round: `alone` is 1 for the rank that says its host in `first`; `same` counts those of the
 * same host; `said` is one host, when all are of it, or two. */
#define ALONE_LOOK_NS (TUTTI_NS_PER_S / 2)
#define ALONE_LINGER_NS (10 * TUTTI_NS_PER_S)

static enum tutti_status alone_compare(const struct rounds *r, const struct tutti_meeting_request *request)
{
    const char *mine = request->card ? request->card->host_name : "?";
    char text[96], host[64] = "?";
    int64_t place, n_same;
    uint64_t id = r->host;
    bool last;
    TUTTI_TRY(round_add(r, "alone", 1, &place));
    snprintf(text, sizeof text, "%016" PRIx64 " %.63s", r->host, mine);
    if (place == 1) {
        TUTTI_TRY(round_publish(r, "first", text));
    } else {
        const enum tutti_status status = round_read(r, "first", request, text, sizeof text, &last);
        if (status < 0) return status == TUTTI_ERR_TIMEOUT ? TUTTI_OK : status; /* it went */
        if (sscanf(text, "%" SCNx64 " %63s", &id, host) != 2)
            return tutti_fail(TUTTI_ERR_PROTOCOL, "the store holds \"%.40s\", not a host of a meeting", text);
    }
    if (id != r->host) {
        char both[160];
        snprintf(both, sizeof both, "%s %.63s", host, mine);
        return round_publish(r, "said", both);
    }
    TUTTI_TRY(round_add(r, "same", 1, &n_same));
    return n_same == request->n_ranks ? round_publish(r, "said", mine) : TUTTI_OK;
}

/* Whether a key of the round has a value, soon. */
static enum tutti_status alone_look(const struct rounds *r, const char *what, uint64_t deadline_ns, char *text,
                                    size_t capacity)
{
    char key[TUTTI_STORE_KEY_MAX + 1];
    size_t n = 0;
    round_key(r, what, key);
    memset(text, 0, capacity);
    const struct tutti_error before = store_begin();
    const enum tutti_status status = r->store->ops->get(r->store->self, key, text, capacity - 1, &n, deadline_ns);
    return status == TUTTI_ERR_TIMEOUT ? TUTTI_PENDING : store_end(status, &before, "get", key);
}

/* None goes before all have heard: the store may be served by rank 0, and launchers end the others when one has failed.
 */
static void alone_linger(const struct rounds *r, const struct tutti_meeting_request *request)
{
    const uint64_t linger = tutti_deadline_ns(ALONE_LINGER_NS);
    int64_t n_heard;
    char text[8];
    if (round_add(r, "heard", 1, &n_heard) < 0) return;
    if (n_heard == request->n_ranks)
        round_publish(r, "all", "heard");
    else
        alone_look(r, "all", linger < request->deadline_ns ? linger : request->deadline_ns, text, sizeof text);
}

/* Waits half of the time, so that the meeting can still say who did not come. A rank that leads already ends the wait:
 * it has a secret, or waited so long. */
static enum tutti_status alone_check(struct rounds *r, const struct tutti_meeting_request *request)
{
    char text[128 + TUTTI_FAR_TEXT], hosts[2][64];
    const uint64_t now = tutti_now_ns();
    const uint64_t until = now + (request->deadline_ns > now ? (request->deadline_ns - now) / 2 : 0);
    if (request->listener || !request->spread) return TUTTI_OK;
    TUTTI_TRY(round_add(r, "round", 0, &r->round));
    TUTTI_TRY(alone_compare(r, request));
    for (uint64_t at = now; at < until; at = tutti_now_ns()) {
        TUTTI_TRY(tutti_meeting_time(request, "the hosts of other ranks"));
        enum tutti_status status = alone_look(r, "said", at + ALONE_LOOK_NS, text, sizeof text);
        if (status == TUTTI_OK && sscanf(text, "%63s %63s", hosts[0], hosts[1]) == 2) {
            alone_linger(r, request);
            return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                              "ranks of this job are on host %s and on host %s (or in another container): %s", hosts[0],
                              hosts[1], request->alone_because);
        }
        if (status == TUTTI_PENDING) status = alone_look(r, "gate/0", at, text, sizeof text);
        if (status != TUTTI_PENDING) return status;
    }
    return TUTTI_OK;
}

enum tutti_status tutti_meet_by_store(const struct tutti_store *store, const char *name,
                                      const struct tutti_meeting_request *request, struct tutti_meeting_result *out)
{
    struct rounds r = {.store = store, .name = name, .host = request->host};
    uint64_t pause_ns = BACKOFF_MIN_NS;
    TUTTI_TRY(alone_check(&r, request));
    /* The first try is for round 0, which most meetings are, without asking: of a round that is over the place is
     * closed, and a rank that publishes in it finds out (round_place). */
    for (int64_t round = -1, claim;; round = r.round) {
        if (round >= 0) TUTTI_TRY(round_add(&r, "round", 0, &r.round));
        if (r.round != round) r.try = 0;
        TUTTI_TRY(round_add(&r, "claim", 1, &claim));
        loss_doubt(&r, request);
        enum tutti_status status = claim == 1 ? round_lead(&r, request, out) : round_join(&r, request, out);
        if (status != TUTTI_AGAIN) return status;
        TUTTI_TRY(tutti_meeting_time(request, "a rank that leads the meeting"));
        back_off(&pause_ns, request);
    }
}
