/* SPDX-License-Identifier: BSD-3-Clause */
/* Boards and failures: what members tell all others without being asked. Each row has one writing member, and no writer
 * ever makes a reader wait, dead or alive. Everything is copied in words of 64 bits with release and acquire: a reader
 * that saw one word of a newer copy also sees, when it looks again, that the copy it read is no longer the valid one.
 */

#include "control/host.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#define COUNT_MASK ((UINT64_C(1) << 48) - 1)
enum { PEEK_TRIES = 1000 };

static void words_write(_Atomic uint64_t *to, const void *from, size_t n_words)
{
    for (size_t i = 0; i < n_words; i++) {
        uint64_t word;
        memcpy(&word, (const char *)from + 8 * i, 8);
        atomic_store_explicit(&to[i], word, memory_order_release);
    }
}

static void words_read(void *to, _Atomic uint64_t *from, size_t n_words)
{
    for (size_t i = 0; i < n_words; i++) {
        uint64_t word = atomic_load_explicit(&from[i], memory_order_acquire);
        memcpy((char *)to + 8 * i, &word, 8);
    }
}

/* Threads of this process that publish or raise take turns; other processes never wait here. */
static void publishing_lock(struct tutti_host_control *host)
{
    while (atomic_exchange_explicit(&host->publishing, 1, memory_order_acquire) != 0) sched_yield();
}

static void publishing_unlock(struct tutti_host_control *host)
{
    atomic_store_explicit(&host->publishing, 0, memory_order_release);
}

static struct tutti_board_row *board_row(const struct tutti_host_control *host, uint32_t member, uint32_t slot)
{
    return &host->boards[(size_t)member * TUTTI_BOARD_ALL + slot];
}

void tutti_host_publish(struct tutti_control *c, uint32_t slot, const struct tutti_board *board)
{
    struct tutti_host_control *host = tutti_host_control_of(c);
    if (slot >= TUTTI_BOARD_ALL) return;
    struct tutti_board_row *row = board_row(host, c->me, slot);
    publishing_lock(host);
    uint64_t next = atomic_load_explicit(&row->sequence, memory_order_relaxed) + 1;
    words_write(row->words[next & 1], board, TUTTI_BOARD_WORDS);
    atomic_store_explicit(&row->sequence, next, memory_order_release);
    publishing_unlock(host);
}

_Atomic uint64_t *tutti_host_counter(struct tutti_control *c, uint32_t slot)
{
    return slot < TUTTI_BOARD_ALL ? &board_row(tutti_host_control_of(c), c->me, slot)->counted : NULL;
}

static enum tutti_status board_read(struct tutti_board_row *row, struct tutti_board *out)
{
    for (int i = 0; i < PEEK_TRIES; i++) {
        uint64_t sequence = atomic_load_explicit(&row->sequence, memory_order_acquire);
        if (sequence == 0) {
            *out = (struct tutti_board){.state = TUTTI_BOARD_EMPTY};
            return TUTTI_OK;
        }
        struct tutti_board board;
        words_read(&board, row->words[sequence & 1], TUTTI_BOARD_WORDS);
        if (atomic_load_explicit(&row->sequence, memory_order_relaxed) == sequence) {
            *out = board;
            const uint64_t word = atomic_load_explicit(&row->counted, memory_order_relaxed), n = word & COUNT_MASK;
            if (n > 0 && word == tutti_board_count(board.comm, n)) out->counted = n;
            return TUTTI_OK;
        }
    }
    return TUTTI_PENDING; /* it is being written on and on */
}

/* The k-th board in use, and what the kernel says of the process. */
static enum tutti_status nth_read(struct tutti_host_control *host, uint32_t peer, uint32_t k, struct tutti_board *out)
{
    const int32_t pid = atomic_load_explicit(&host->lives[peer].pid, memory_order_relaxed);
    struct tutti_board board, found = {.state = TUTTI_BOARD_EMPTY};
    struct tutti_process process = {.state = 0};
    for (uint32_t slot = 0; slot < TUTTI_BOARD_SLOTS; slot++) {
        TUTTI_TRY(board_read(board_row(host, peer, slot), &board));
        if (board.state != TUTTI_BOARD_IN_USE || k-- > 0) continue;
        found = board;
        break;
    }
    found.pid = pid;
    if (atomic_load_explicit(&host->lives[peer].pid_namespace, memory_order_relaxed) == host->pid_namespace && pid > 0)
        tutti_process_read(pid, &process);
    found.process = (uint8_t)process.state;
    *out = found;
    return TUTTI_OK;
}

enum tutti_status tutti_host_peek(struct tutti_control *c, uint32_t peer, uint32_t slot, struct tutti_board *out)
{
    struct tutti_host_control *host = tutti_host_control_of(c);
    if (peer < c->n && slot < TUTTI_BOARD_ALL) return board_read(board_row(host, peer, slot), out);
    if (peer < c->n && slot >= TUTTI_BOARD_NTH && slot < TUTTI_BOARD_ASKED)
        return nth_read(host, peer, slot - TUTTI_BOARD_NTH, out);
    return TUTTI_ERR_UNSUPPORTED;
}

/* Several members may raise a failure of one communicator at once, and all must take the same one. A failure is written
 * before it is claimed, by its member or by whoever reads it first, so the one that a claim names can be read. Entries
 * stay; when there are too many, each reader takes what it reads first. */
static bool counts(struct tutti_host_control *host, uint64_t comm, uint32_t epoch, uint32_t member)
{
    const uint64_t key = (tutti_mix64(comm ^ ((uint64_t)epoch << 32)) | 1) << 16, mine = key | (member + 1);
    if (comm == 0) return true;
    for (uint64_t i = 0; i < TUTTI_CLAIMS; i++) {
        _Atomic uint64_t *claim = &host->claims->words[((key >> 16) + i) % TUTTI_CLAIMS];
        uint64_t found = atomic_load_explicit(claim, memory_order_acquire);
        if (found == 0 && atomic_compare_exchange_strong(claim, &found, mine)) return true;
        if (found >> 16 == key >> 16) return found == mine;
    }
    return true;
}

void tutti_host_raise(struct tutti_control *c, const struct tutti_failure *failure)
{
    struct tutti_host_control *host = tutti_host_control_of(c);
    const struct tutti_error *error = &failure->error;
    struct tutti_failure_record record = {.comm = failure->comm,
                                          .seq = error->seq,
                                          .epoch = failure->epoch,
                                          .culprit = failure->culprit,
                                          .step = error->step,
                                          .status = error->status,
                                          .peer = error->peer,
                                          .os_errno = error->os_errno};
    memcpy(record.text, error->text, sizeof(record.text));
    struct tutti_failure_row *row = &host->failures[c->me];

    publishing_lock(host);
    uint64_t k = atomic_load_explicit(&row->n_raised, memory_order_relaxed);
    struct tutti_failure_slot *slot = &row->slots[k % TUTTI_FAILURE_SLOTS];
    atomic_store_explicit(&slot->stamp, 2 * k + 1, memory_order_release);
    words_write(slot->words, &record, TUTTI_FAILURE_WORDS);
    atomic_store_explicit(&slot->stamp, 2 * k + 2, memory_order_release);
    atomic_store_explicit(&row->n_raised, k + 1, memory_order_release);
    publishing_unlock(host);

    counts(host, failure->comm, failure->epoch, c->me);
    atomic_fetch_add_explicit(&host->claims->hint, 1, memory_order_seq_cst);
    for (uint32_t i = 0; i < c->n; i++) tutti_doorbell_ring(tutti_segment_doorbell(host->segment, i));
}

/* Failure k of a row; false when it has been overwritten. */
static bool failure_read(struct tutti_failure_row *row, uint64_t k, struct tutti_failure_record *out)
{
    struct tutti_failure_slot *slot = &row->slots[k % TUTTI_FAILURE_SLOTS];
    if (atomic_load_explicit(&slot->stamp, memory_order_acquire) != 2 * k + 2) return false;
    words_read(out, slot->words, TUTTI_FAILURE_WORDS);
    return atomic_load_explicit(&slot->stamp, memory_order_relaxed) == 2 * k + 2;
}

static void failure_decode(const struct tutti_failure_record *record, uint32_t n, struct tutti_failure *out)
{
    *out = (struct tutti_failure){.comm = record->comm,
                                  .epoch = record->epoch,
                                  .culprit = record->culprit < n ? record->culprit : UINT32_MAX,
                                  .error = {.status = (enum tutti_status)record->status,
                                            .peer = record->peer,
                                            .os_errno = record->os_errno,
                                            .step = record->step,
                                            .seq = record->seq}};
    if (record->status >= 0) out->error.status = TUTTI_ERR_PROTOCOL; /* nobody raises success */
    memcpy(out->error.text, record->text, sizeof(out->error.text));
    out->error.text[sizeof(out->error.text) - 1] = '\0';
    if (out->error.text[0] == '\0') strcpy(out->error.text, "a member raised a failure without a sentence");
}

enum tutti_status tutti_host_failure(struct tutti_control *c, struct tutti_failure *out)
{
    struct tutti_host_control *host = tutti_host_control_of(c);
    uint32_t hint = atomic_load_explicit(&host->claims->hint, memory_order_acquire);
    if (hint == host->hint_seen) return TUTTI_AGAIN;
    for (uint32_t i = 0; i < c->n; i++) {
        struct tutti_failure_row *row = &host->failures[i];
        uint64_t n_raised = atomic_load_explicit(&row->n_raised, memory_order_acquire);
        uint64_t *n_read = &host->known[i].failures_read;
        if (n_raised <= *n_read) continue;
        if (n_raised - *n_read > TUTTI_FAILURE_SLOTS) *n_read = n_raised - TUTTI_FAILURE_SLOTS; /* too late for those */
        while (*n_read < n_raised) {
            struct tutti_failure_record record;
            if (!failure_read(row, (*n_read)++, &record) || !counts(host, record.comm, record.epoch, i)) continue;
            failure_decode(&record, c->n, out);
            return TUTTI_OK;
        }
    }
    host->hint_seen = hint;
    atomic_store_explicit(&host->base.heard, hint, memory_order_relaxed);
    return TUTTI_AGAIN;
}
