/* SPDX-License-Identifier: BSD-3-Clause */
/* Looks in a file, to be judged elsewhere or later, and together with those of other hosts. Lines of text:
 *
 *     tutti-looks 1 world=9f3c n=4 looks=2 one_host=0
 *     look at=0
 *     rank 0 known=1 life=0 pid=123 process=83 reach=0 host=a
 *     board comm=4f2a seq=17 ...
 *
 * A board belongs to the rank above it, a rank to the look above it. */

#include "doctor.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MOST 1000000
enum { LINE = 1024 };

/* The fields of a board: name, offset, bytes, whether signed. */
struct field {
    const char *name;
    size_t offset;
    uint8_t bytes;
    bool is_signed;
};
#define FIELD(name, is_signed)                                                                                         \
    {                                                                                                                  \
#name, offsetof(struct tutti_board, name), sizeof(((struct tutti_board *)0)->name), is_signed                  \
    }
static const struct field fields[] = {
    FIELD(comm, false),      FIELD(seq, false),         FIELD(completed, false),
    FIELD(counted, false),   FIELD(signature, false),   FIELD(count, false),
    FIELD(called_ns, false), FIELD(since_ns, false),    FIELD(message_since_ns, false),
    FIELD(step, false),      FIELD(n_steps, false),     FIELD(peer, true),
    FIELD(root, true),       FIELD(message_peer, true), FIELD(message_tag, true),
    FIELD(epoch, false),     FIELD(rank, false),        FIELD(size, false),
    FIELD(kind, false),      FIELD(dtype, false),       FIELD(op, false),
    FIELD(message, false),   FIELD(failed, false),
};

static uint64_t field_get(const struct tutti_board *b, const struct field *f)
{
    uint64_t value = 0;
    memcpy(&value, (const char *)b + f->offset, f->bytes); /* little-endian, as the wire */
    return f->is_signed ? (uint64_t)(int64_t)(int32_t)(uint32_t)value : value;
}

bool doctor_dump_write(FILE *out, const struct doctor_world *world)
{
    fprintf(out, "tutti-looks 1 world=%" PRIx64 " n=%u looks=%u one_host=%d\n", world->world, world->n, world->n_looks,
            world->one_host);
    for (uint32_t k = 0; k < world->n_looks; k++) {
        fprintf(out, "look at=%" PRIu64 "\n", world->at_ns[k]);
        for (uint32_t i = 0; i < world->n; i++) {
            const struct doctor_rank *rank = &world->looks[k][i];
            fprintf(out, "rank %u known=%d life=%d pid=%d process=%d reach=%d host=%s\n", i, rank->known,
                    (int)rank->life, (int)rank->pid, rank->process, (int)rank->reach, rank->host);
            for (uint32_t b = 0; b < rank->n_boards; b++) {
                fputs("board", out);
                for (size_t f = 0; f < TUTTI_ARRAY_LEN(fields); f++)
                    fprintf(out, fields[f].is_signed ? " %s=%" PRId64 : " %s=%" PRIu64, fields[f].name,
                            field_get(&rank->boards[b], &fields[f]));
                fputc('\n', out);
            }
        }
    }
    return fflush(out) == 0 && !ferror(out);
}

/* ---- reading: what can not be is refused ---- */

struct reading {
    struct doctor_world *world;
    struct doctor_rank *rank; /* that boards go to; NULL: not wanted, another dump knows it */
    uint32_t look;            /* in this dump */
    bool any_look, any_rank;
};

static bool board_parse(const char *line, struct tutti_board *out)
{
    char *end;
    *out = (struct tutti_board){.state = TUTTI_BOARD_IN_USE};
    for (size_t f = 0; f < TUTTI_ARRAY_LEN(fields); f++) {
        const size_t n = strlen(fields[f].name);
        if (*line != ' ' || strncmp(line + 1, fields[f].name, n) != 0 || line[n + 1] != '=') return false;
        const uint64_t value =
            fields[f].is_signed ? (uint64_t)strtoll(line + n + 2, &end, 10) : strtoull(line + n + 2, &end, 10);
        if (end == line + n + 2) return false;
        memcpy((char *)out + fields[f].offset, &value, fields[f].bytes);
        line = end;
    }
    return *line == '\n' && out->comm != 0;
}

static bool rank_parse(struct reading *r, const char *line)
{
    unsigned number, known, life, reach;
    int pid, process, at = 0;
    if (!r->any_look ||
        sscanf(line, "rank %u known=%u life=%u pid=%d process=%d reach=%u host=%n", &number, &known, &life, &pid,
               &process, &reach, &at) < 6 ||
        at == 0 || number >= r->world->n || life > TUTTI_LIFE_UNKNOWN || process < 0 || process > 126 ||
        reach >= DOCTOR_N_REACHES)
        return false;
    struct doctor_rank *rank = &r->world->looks[r->look][number];
    r->any_rank = true, r->rank = NULL;
    if (rank->known) return true;
    r->rank = rank;
    *rank = (struct doctor_rank){.known = known != 0,
                                 .life = (enum tutti_life)life,
                                 .pid = pid,
                                 .process = (char)process,
                                 .reach = (enum doctor_reach)reach};
    snprintf(rank->host, sizeof rank->host, "%.*s", (int)strcspn(line + at, "\n"), line + at);
    return true;
}

/* The world that a dump speaks of: known already, or a new one. */
static struct doctor_world *world_take(const char *line, struct doctor_world *worlds, uint32_t capacity, uint32_t *n)
{
    uint64_t id;
    unsigned ranks, looks, one_host;
    if (sscanf(line, "tutti-looks 1 world=%" SCNx64 " n=%u looks=%u one_host=%u", &id, &ranks, &looks, &one_host) != 4)
        return NULL;
    if (ranks == 0 || ranks > RANKS_MOST) return NULL;
    for (uint32_t i = 0; i < *n; i++)
        if (worlds[i].world == id) return worlds[i].n == ranks ? &worlds[i] : NULL;
    if (*n == capacity) return NULL;
    worlds[*n] = (struct doctor_world){.world = id, .n = ranks, .one_host = one_host != 0};
    return &worlds[(*n)++];
}

static bool look_parse(struct reading *r, const char *line)
{
    uint64_t at;
    if (sscanf(line, "look at=%" SCNu64, &at) != 1) return false;
    r->look = r->any_look ? r->look + 1 : 0;
    r->any_look = true, r->rank = NULL;
    return r->look < r->world->n_looks || doctor_world_look_add(r->world, at) == TUTTI_OK;
}

static bool line_parse(struct reading *r, const char *line)
{
    struct tutti_board board;
    if (strncmp(line, "look ", 5) == 0) return look_parse(r, line);
    if (strncmp(line, "rank ", 5) == 0) return rank_parse(r, line);
    if (strncmp(line, "board ", 6) != 0 || !r->any_rank || !board_parse(line + 5, &board)) return false;
    if (r->rank && r->rank->n_boards < DOCTOR_BOARDS) r->rank->boards[r->rank->n_boards++] = board;
    return true;
}

enum tutti_status doctor_dump_read(FILE *in, struct doctor_world *worlds, uint32_t capacity, uint32_t *n)
{
    char line[LINE];
    struct reading r = {.world = NULL};
    for (uint32_t number = 1; fgets(line, sizeof line, in); number++) {
        if (strncmp(line, "tutti-looks ", 12) == 0)
            r = (struct reading){.world = world_take(line, worlds, capacity, n)};
        else if (r.world && !line_parse(&r, line))
            r.world = NULL;
        if (!r.world) return tutti_fail(TUTTI_ERR_CONFIG, "line %u can not be understood", number);
    }
    if (!r.any_rank) return tutti_fail(TUTTI_ERR_CONFIG, "there is no look in it");
    return TUTTI_OK;
}
