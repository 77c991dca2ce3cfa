/* SPDX-License-Identifier: BSD-3-Clause */
/* The words of a verdict. */

#include "doctor.h"

#include "engine/team/report.h"

#include <string.h>

const char *doctor_kind_name(enum doctor_kind kind)
{
    static const char *const names[DOCTOR_N_KINDS] = {
        [DOCTOR_FINE] = "fine",         [DOCTOR_SLOW_RANK] = "slow rank", [DOCTOR_SLOW_LINK] = "slow link",
        [DOCTOR_UNHEARD] = "unheard",   [DOCTOR_LINK] = "lost message",   [DOCTOR_LETTER] = "missing message",
        [DOCTOR_CIRCLE] = "circle",     [DOCTOR_LEFT] = "left",           [DOCTOR_MISSING] = "missing call",
        [DOCTOR_MISMATCH] = "mismatch", [DOCTOR_STOPPED] = "stopped",     [DOCTOR_DEAD] = "dead",
    };
    return names[kind];
}

void doctor_say_rank(const struct doctor_world *world, int32_t rank, char *out, size_t capacity)
{
    const struct doctor_rank *at = &world->looks[world->n_looks - 1][rank];
    if (world->one_host || !at->host[0])
        tutti_append(out, capacity, "rank %d", (int)rank);
    else
        tutti_append(out, capacity, "rank %d on host %s", (int)rank, at->host);
}

struct words {
    const struct doctor_world *world;
    struct doctor_verdict *v;
};

static void add_rank(const struct words *w, int32_t rank)
{
    doctor_say_rank(w->world, rank, w->v->text, sizeof w->v->text);
}

/* printf, to the end of the sentence. */
#define ADD(w, ...) tutti_append((w)->v->text, sizeof(w)->v->text, __VA_ARGS__)

static void add_age(const struct words *w, uint64_t ns)
{
    ADD(w, "%.1f s", (double)ns / 1e9);
}

/* "all_reduce #17 (float32, 1024 elements, sum) on communicator 4f2a"; of a message "recv from rank 1 (tag 3) ..." */
static void add_call(const struct words *w)
{
    const struct tutti_board *b = &w->v->call;
    char text[TUTTI_CALL_TEXT];
    if (doctor_is_in_call(b)) {
        tutti_say_call(NULL, b, NULL, text, sizeof text);
        ADD(w, "%s", text);
    } else {
        const bool signal = b->message == TUTTI_BOARD_WAIT;
        const char *verb = b->message == TUTTI_BOARD_SEND ? "send to" : signal ? "wait_signal from" : "recv from";
        ADD(w, "%s rank %d (%s %d)", verb, (int)b->message_peer, signal ? "signal" : "tag", (int)b->message_tag);
    }
    ADD(w, " on communicator %llx", (unsigned long long)b->comm);
}

/* "; 3 ranks have waited for it in CALL for 4.2 s" */
static void add_waiting(const struct words *w)
{
    if (w->v->call.comm == 0) {
        ADD(w, "; no rank waits for another");
        return;
    }
    if (w->v->n_waiting == 0) return; /* they wait in a later call */
    ADD(w, w->v->n_waiting == 1 ? "; 1 rank has waited in " : "; %u ranks have waited in ", w->v->n_waiting);
    add_call(w);
    ADD(w, " for ");
    add_age(w, w->v->age_ns);
}

static void add_others(const struct words *w, const char *what)
{
    if (w->v->n_guilty > 1) ADD(w, " (and %u more %s)", w->v->n_guilty - 1, what);
}

/* "; its process 123 computes" */
static void add_process(const struct words *w)
{
    const struct doctor_rank *at = &w->world->looks[w->world->n_looks - 1][w->v->rank];
    static const char *const doing[128] = {['R'] = "computes",
                                           ['S'] = "sleeps, but not in a call of tutti",
                                           ['D'] = "waits for a disk or a file system",
                                           ['Z'] = "has ended"};
    const char *text = at->process > 0 ? doing[(unsigned char)at->process & 127] : NULL;
    if (text) ADD(w, "; its process %d %s", (int)at->pid, text);
}

/* "; its last call is all_gather #16" */
static void add_last(const struct words *w)
{
    const struct tutti_board *b = &w->v->last;
    char text[TUTTI_CALL_TEXT];
    if (b->comm == 0 || doctor_called(b) == 0) {
        ADD(w, "; it has called nothing there");
    } else if (b->counted > b->seq) {
        ADD(w, "; its last call there is #%llu", (unsigned long long)b->counted);
    } else {
        tutti_say_call(NULL, b, NULL, text, sizeof text);
        ADD(w, "; its last call there is %s", text);
        if (b->since_ns && b->completed >= b->seq) {
            ADD(w, ", complete for ");
            add_age(w, b->since_ns);
        }
    }
}

/* ---- one sentence a kind ---- */

static void say_fine(const struct words *w)
{
    ADD(w, "nothing is wrong with the %u ranks: ", w->world->n);
    if (w->v->call.comm == 0) {
        ADD(w, "no rank waits long for another, and none has called anything meanwhile");
        return;
    }
    ADD(w, "calls on communicator %llx went from #%llu to #%llu in ", (unsigned long long)w->v->call.comm,
        (unsigned long long)doctor_called(&w->v->last), (unsigned long long)doctor_called(&w->v->call));
    add_age(w, w->world->at_ns[w->world->n_looks - 1]);
}

static void say_slow_rank(const struct words *w)
{
    add_rank(w, w->v->rank);
    ADD(w, " is slow: in %u of %u looks the others waited for it, %.2f s when longest, the last time in ",
        w->v->n_blamed, w->v->n_of, (double)w->v->age_ns / 1e9);
    add_call(w);
    add_process(w);
}

static void say_slow_link(const struct words *w)
{
    ADD(w, "the link between ");
    add_rank(w, w->v->rank);
    ADD(w, " and ");
    add_rank(w, w->v->other);
    ADD(w, " is slow: in %u of %u looks messages between their hosts were waited for, for %.2f s in ", w->v->n_blamed,
        w->v->n_of, (double)w->v->age_ns / 1e9);
    add_call(w);
    ADD(w, ", which all its ranks had called");
}

static void say_unheard(const struct words *w)
{
    static const char *const why[DOCTOR_N_REACHES] = {
        [DOCTOR_NOT_TRIED] =
            ": the process that speaks for its host is stopped, or the host or the network to it is gone",
        [DOCTOR_CONNECTS] = ", though its host takes connections",
        [DOCTOR_REFUSES] = ", and nobody listens there any more: its process has ended",
        [DOCTOR_NO_WAY] = ", and no connection to its host can be made: the host or the network to it is gone"};
    add_rank(w, w->v->rank);
    add_others(w, "ranks");
    ADD(w, " does not answer%s", why[w->world->looks[w->world->n_looks - 1][w->v->rank].reach]);
    add_waiting(w);
}

static void say_link(const struct words *w)
{
    ADD(w, "a message from ");
    add_rank(w, w->v->rank);
    ADD(w, " to ");
    add_rank(w, w->v->other);
    ADD(w, " does not arrive, though all have called it");
    add_waiting(w);
}

static void say_letter(const struct words *w)
{
    const bool signal = w->v->call.message == TUTTI_BOARD_WAIT;
    add_rank(w, w->v->rank);
    ADD(w, w->v->call.message == TUTTI_BOARD_SEND ? " has not received" : " has not sent");
    ADD(w, " %s %d that ", signal ? "signal" : "the message with tag", (int)w->v->call.message_tag);
    add_rank(w, w->v->other);
    ADD(w, w->v->call.message == TUTTI_BOARD_SEND ? " has sent it: " : " waits for: ");
    add_call(w);
    ADD(w, ", for ");
    add_age(w, w->v->age_ns);
    add_process(w);
}

static void say_circle(const struct words *w)
{
    add_rank(w, w->v->other);
    ADD(w, " and ");
    add_rank(w, w->v->rank);
    ADD(w, " wait for one another in different calls, which they made in another order");
    add_waiting(w);
}

static void say_left(const struct words *w)
{
    add_rank(w, w->v->rank);
    add_others(w, "ranks");
    ADD(w, " has left the communicator, or never joined it");
    add_waiting(w);
    add_process(w);
}

static void say_missing(const struct words *w)
{
    add_rank(w, w->v->rank);
    add_others(w, "ranks");
    ADD(w, " has not called ");
    add_call(w);
    ADD(w,
        w->v->n_waiting == 1 ? ", which 1 rank has been waiting in for " : ", which %u ranks have been waiting in for ",
        w->v->n_waiting);
    add_age(w, w->v->age_ns);
    add_last(w);
    add_process(w);
}

static void say_mismatch(const struct words *w)
{
    char theirs[160], others[160];
    add_rank(w, w->v->rank);
    add_others(w, "ranks");
    tutti_say_board(NULL, &w->v->last, theirs, sizeof theirs);
    tutti_say_board(NULL, &w->v->call, others, sizeof others);
    ADD(w, " called %s as #%llu on communicator %llx, ", theirs, (unsigned long long)w->v->call.seq,
        (unsigned long long)w->v->call.comm);
    add_rank(w, w->v->other);
    ADD(w, " called %s", others);
    if (strcmp(theirs, others) == 0) ADD(w, " with other tables or another order");
}

static void say_stopped(const struct words *w)
{
    add_rank(w, w->v->rank);
    add_others(w, "ranks");
    const struct doctor_rank *at = &w->world->looks[w->world->n_looks - 1][w->v->rank];
    if (at->known)
        ADD(w, " is stopped (SIGSTOP, a debugger): process %d", (int)at->pid);
    else
        ADD(w, " is stopped, or does not get to run: its host takes connections, but the process does not answer");
    add_waiting(w);
}

static void say_dead(const struct words *w)
{
    add_rank(w, w->v->rank);
    add_others(w, "ranks");
    ADD(w, w->world->one_host ? " died: its process is gone" : " died: its process or its host is gone");
    add_waiting(w);
}

void doctor_say(const struct doctor_world *world, struct doctor_verdict *verdict)
{
    static void (*const say[DOCTOR_N_KINDS])(const struct words *) = {
        [DOCTOR_FINE] = say_fine,         [DOCTOR_SLOW_RANK] = say_slow_rank, [DOCTOR_SLOW_LINK] = say_slow_link,
        [DOCTOR_UNHEARD] = say_unheard,   [DOCTOR_LINK] = say_link,           [DOCTOR_LETTER] = say_letter,
        [DOCTOR_CIRCLE] = say_circle,     [DOCTOR_LEFT] = say_left,           [DOCTOR_MISSING] = say_missing,
        [DOCTOR_MISMATCH] = say_mismatch, [DOCTOR_STOPPED] = say_stopped,     [DOCTOR_DEAD] = say_dead,
    };
    verdict->text[0] = '\0';
    say[verdict->kind](&(struct words){world, verdict});
}
