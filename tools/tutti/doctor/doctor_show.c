/* SPDX-License-Identifier: BSD-3-Clause */
/* A verdict and the last look, as a page for a person and as JSON. */

#include "doctor.h"

#include "sched/kind.h"
#include "tools/tutti/json.h"

#define RANKS_SHOWN 64 /* on the page; JSON has all */

static const char *const lives[] = {"alive", "left", "dead", "unknown"};

static const char *kind_name(const struct tutti_board *b)
{
    return b->seq == 0 || b->kind >= TUTTI_N_KINDS ? "-" : tutti_kind_name((enum tutti_kind)b->kind);
}

/* "all_reduce #17, step 3 of 6, waits for rank 1, 4.2 s" */
static void board_write(FILE *out, const struct tutti_board *b)
{
    const double age = (double)(doctor_is_in_call(b) ? b->called_ns
                                : b->message         ? b->message_since_ns
                                                     : b->since_ns) /
                       1e9;
    fprintf(out, "    communicator %llx, rank %u of %u: ", (unsigned long long)b->comm, b->rank, b->size);
    if (b->failed) {
        fprintf(out, "failed\n");
        return;
    }
    if (doctor_is_in_call(b)) {
        fprintf(out, "in %s #%llu", kind_name(b), (unsigned long long)b->seq);
        if (b->n_steps) fprintf(out, ", step %u of %u", b->step + 1, b->n_steps);
        if (b->peer >= 0) fprintf(out, ", waits for rank %d of it", (int)b->peer);
    } else if (b->message == TUTTI_BOARD_WAIT) {
        fprintf(out, "waits for signal %d of rank %d of it", (int)b->message_tag, (int)b->message_peer);
    } else if (b->message) {
        fprintf(out, "%s rank %d of it, tag %d", b->message == TUTTI_BOARD_SEND ? "sends to" : "receives from",
                (int)b->message_peer, (int)b->message_tag);
    } else if (b->counted > b->seq) {
        fprintf(out, "#%llu is complete\n", (unsigned long long)b->counted);
        return;
    } else if (b->seq == 0) {
        fprintf(out, "no call yet\n");
        return;
    } else {
        fprintf(out, "%s #%llu is complete", kind_name(b), (unsigned long long)b->seq);
    }
    fprintf(out, ", for %.1f s\n", age);
}

/* "    sockets: eth0, 10.0.0.1 to 10.0.0.2: 2; eth1, 10.1.0.1 to 10.1.0.2: 1" */
static void sockets_write(FILE *out, const struct doctor_rank *rank)
{
    struct doctor_sockets sockets;
    doctor_sockets_look(rank, &sockets);
    for (uint32_t i = 0; i < sockets.n; i++) {
        const struct doctor_way *way = &sockets.ways[i];
        fprintf(out, "%s%s%s%s to %s: %u", i ? "; " : "    sockets: ", way->interface, way->interface[0] ? ", " : "",
                way->from, way->to, way->n);
    }
    if (sockets.n > 0) fputc('\n', out);
}

void doctor_page_write(FILE *out, const struct doctor_world *world, const struct doctor_verdict *verdict)
{
    const struct doctor_rank *ranks = world->looks[world->n_looks - 1];
    char name[160];
    fprintf(out, "%s: %s\n", doctor_kind_name(verdict->kind), verdict->text);
    for (uint32_t i = 0; i < world->n && i < RANKS_SHOWN; i++) {
        name[0] = '\0';
        doctor_say_rank(world, (int32_t)i, name, sizeof name);
        fprintf(out, "  %s: ", name);
        if (ranks[i].known)
            fprintf(out, "%s, process %d (%c)\n", lives[ranks[i].life], (int)ranks[i].pid,
                    ranks[i].process ? ranks[i].process : '?');
        else
            fprintf(out, "%s, does not answer\n", lives[ranks[i].life]);
        sockets_write(out, &ranks[i]);
        for (uint32_t b = 0; b < ranks[i].n_boards; b++) board_write(out, &ranks[i].boards[b]);
    }
    if (world->n > RANKS_SHOWN) fprintf(out, "  ... and %u more: --json has all\n", world->n - RANKS_SHOWN);
}

/* ---- JSON ---- */

static void board_json(FILE *out, const struct tutti_board *b)
{
    static const char *const letters[] = {"none", "send", "recv", "wait_signal"};
    fprintf(out, "{\"communicator\":\"%llx\",\"rank\":%u,\"size\":%u,\"call\":", (unsigned long long)b->comm, b->rank,
            b->size);
    tutti_json_string(out, kind_name(b));
    fprintf(out, ",\"number\":%llu,\"in_call\":%s,\"failed\":%s,\"signature\":\"%llx\",\"count\":%llu",
            (unsigned long long)doctor_called(b), doctor_is_in_call(b) ? "true" : "false", b->failed ? "true" : "false",
            (unsigned long long)b->signature, (unsigned long long)b->count);
    fprintf(out, ",\"step\":%u,\"steps\":%u,\"awaits\":%d,\"called_s\":%.3f,\"since_s\":%.3f", b->step, b->n_steps,
            (int)b->peer, (double)b->called_ns / 1e9, (double)b->since_ns / 1e9);
    fprintf(out, ",\"message\":\"%s\",\"message_peer\":%d,\"message_tag\":%d,\"message_s\":%.3f}",
            letters[b->message > TUTTI_BOARD_WAIT ? 0 : b->message], (int)b->message_peer, (int)b->message_tag,
            (double)b->message_since_ns / 1e9);
}

static void sockets_json(FILE *out, const struct doctor_rank *rank)
{
    struct doctor_sockets sockets;
    doctor_sockets_look(rank, &sockets);
    fputs(",\"sockets\":[", out);
    for (uint32_t i = 0; i < sockets.n; i++) {
        const struct doctor_way *way = &sockets.ways[i];
        fprintf(out, "%s{\"interface\":\"%s\",\"from\":\"%s\",\"to\":\"%s\",\"n\":%u}", i ? "," : "", way->interface,
                way->from, way->to, way->n);
    }
    fputs("]", out);
}

static void rank_json(FILE *out, const struct doctor_rank *rank, uint32_t number)
{
    const char process[2] = {rank->process, '\0'};
    fprintf(out, "{\"rank\":%u,\"host\":", number);
    tutti_json_string(out, rank->host);
    fprintf(out, ",\"life\":\"%s\",\"known\":%s,\"pid\":%d,\"process\":", lives[rank->life],
            rank->known ? "true" : "false", (int)rank->pid);
    tutti_json_string(out, process);
    sockets_json(out, rank);
    fputs(",\"communicators\":[", out);
    for (uint32_t b = 0; b < rank->n_boards; b++) {
        if (b) fputc(',', out);
        board_json(out, &rank->boards[b]);
    }
    fputs("]}", out);
}

void doctor_json_write(FILE *out, const struct doctor_world *world, const struct doctor_verdict *v)
{
    const bool call = v->call.comm != 0;
    fprintf(out, "{\"verdict\":\"%s\",\"text\":", doctor_kind_name(v->kind));
    tutti_json_string(out, v->text);
    fprintf(out, ",\"rank\":%d,\"other\":%d,\"guilty\":%u,\"waiting\":%u,\"seconds\":%.3f", (int)v->rank, (int)v->other,
            v->n_guilty, v->n_waiting, (double)v->age_ns / 1e9);
    fprintf(out, ",\"communicator\":\"%llx\",\"call\":", (unsigned long long)v->call.comm);
    tutti_json_string(out, call ? kind_name(&v->call) : "");
    fprintf(out, ",\"number\":%llu,\"looks\":%u,\"ranks\":[", call ? (unsigned long long)doctor_called(&v->call) : 0,
            world->n_looks);
    for (uint32_t i = 0; i < world->n; i++) {
        if (i) fputc(',', out);
        rank_json(out, &world->looks[world->n_looks - 1][i], i);
    }
    fputs("]}\n", out);
}
