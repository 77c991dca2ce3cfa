/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks called on the device, in memory that their peers map: kernels carry no signatures, so that ranks differ is
 * found by comparing what they enqueued, and told with both calls. A rank may be far ahead of another: entries are kept
 * for a while, and a hash of all that came before tells whether two ranks have agreed up to there. */
#include "backend/watch_log.h"

static void post_item(struct watch_log *log, uint64_t launch, uint64_t with, uint64_t nth, size_t bytes,
                      uint64_t timeout_ns)
{
    uint64_t n = WATCH_LOAD(log->n_items);
    struct watch_item *item = &log->items[n % WATCH_LOG_ITEMS];
    atomic_thread_fence(memory_order_release);
    WATCH_STORE(item->launch, launch);
    WATCH_STORE(item->with, with);
    WATCH_STORE(item->nth, nth);
    WATCH_STORE(item->bytes, bytes);
    WATCH_STORE(item->timeout_ns, timeout_ns);
    atomic_store_explicit(&log->n_items, n + 1, memory_order_release);
}

void watch_log_post(struct watch_log *log, const struct tutti_backend_call *call, uint64_t where, uint64_t timeout_ns)
{
    const struct tutti_call_info *info = &call->info;
    uint64_t signature = info->signature ^ where;
    uint64_t n = WATCH_LOAD(log->n), before = n > 0 ? WATCH_LOAD(watch_log_entry(log, n - 1)->hash) : 0;
    struct watch_entry *entry = &log->entries[n % WATCH_LOG_ENTRIES];
    atomic_thread_fence(memory_order_release); /* a reader of what is written now sees this n, too: watch_log_keeps */
    WATCH_STORE(entry->seq, call->seq);
    WATCH_STORE(entry->signature, signature);
    WATCH_STORE(entry->call,
                tutti_call_word((uint32_t)info->kind, (uint32_t)info->dtype, (uint32_t)info->op, info->root));
    WATCH_STORE(entry->count, info->count);
    WATCH_STORE(entry->hash, tutti_mix64(before ^ tutti_mix64(signature ^ tutti_mix64(call->seq))));
    atomic_store_explicit(&log->n, n + 1, memory_order_release);
    post_item(log, call->seq, 0, 0, 0, timeout_ns);
}

uint64_t watch_log_round(const struct watch_log *log)
{
    return WATCH_MESSAGES | WATCH_LOAD(log->n_items);
}

void watch_log_message(struct watch_log *log, uint64_t launch, uint32_t peer, bool sends, size_t bytes,
                       uint64_t timeout_ns)
{
    struct watch_letters *letters = sends ? &log->sent[peer] : &log->received[peer];
    const uint64_t n = WATCH_LOAD(letters->n);
    post_item(log, launch, 2 * peer + sends, n + 1, bytes, timeout_ns);
    atomic_thread_fence(memory_order_release); /* a reader of what is written now sees this n, too: read_letters */
    WATCH_STORE(letters->hash[(n + 1) % 2], tutti_mix64(WATCH_LOAD(letters->hash[n % 2]) ^ tutti_mix64(bytes + 1)));
    atomic_store_explicit(&letters->n, n + 1, memory_order_release);
}

static void read_entry(const struct watch_log *log, uint64_t i, struct tutti_board *out)
{
    const struct watch_entry *entry = watch_log_entry(log, i);
    *out = (struct tutti_board){.seq = WATCH_LOAD(entry->seq), .signature = WATCH_LOAD(entry->signature), .peer = -1};
    tutti_call_unpack(WATCH_LOAD(entry->call), WATCH_LOAD(entry->count), out);
}

bool watch_log_last(const struct watch_log *log, struct tutti_board *out)
{
    for (;;) {
        uint64_t n = atomic_load_explicit(&log->n, memory_order_acquire);
        if (n == 0) return false;
        read_entry(log, n - 1, out);
        if (watch_log_keeps(log, n - 1)) return true;
    }
}

bool watch_log_find(const struct watch_log *log, uint64_t seq, struct tutti_board *out)
{
    uint64_t n = atomic_load_explicit(&log->n, memory_order_acquire);
    for (uint64_t i = n; i > 0 && watch_log_keeps(log, i - 1); i--) {
        read_entry(log, i - 1, out);
        if (out->seq == seq) return watch_log_keeps(log, i - 1);
    }
    return false;
}

uint64_t watch_log_timeout(const struct watch_log *log, uint64_t launch, uint64_t otherwise)
{
    uint64_t n = atomic_load_explicit(&log->n_items, memory_order_acquire);
    for (uint64_t i = n; i > 0 && watch_log_keeps_item(log, i - 1); i--) {
        uint64_t timeout_ns = WATCH_LOAD(watch_log_item(log, i - 1)->timeout_ns);
        if (WATCH_LOAD(watch_log_item(log, i - 1)->launch) == launch && watch_log_keeps_item(log, i - 1))
            return timeout_ns;
    }
    return otherwise;
}

bool watch_log_differ(const struct watch_log *mine, const struct watch_log *theirs, struct tutti_board *my_call,
                      struct tutti_board *their_call)
{
    uint64_t my_n = atomic_load_explicit(&mine->n, memory_order_acquire);
    uint64_t their_n = atomic_load_explicit(&theirs->n, memory_order_acquire), both = my_n < their_n ? my_n : their_n;
    bool differ = false;
    if (both == 0 ||
        WATCH_LOAD(watch_log_entry(mine, both - 1)->hash) == WATCH_LOAD(watch_log_entry(theirs, both - 1)->hash))
        return false;
    /* The oldest that differs is what went wrong; those before it agree. */
    for (uint64_t i = both; i > 0; i--) {
        struct tutti_board my_board, their_board;
        read_entry(mine, i - 1, &my_board);
        read_entry(theirs, i - 1, &their_board);
        bool same = WATCH_LOAD(watch_log_entry(mine, i - 1)->hash) == WATCH_LOAD(watch_log_entry(theirs, i - 1)->hash);
        if (!watch_log_keeps(mine, i - 1) || !watch_log_keeps(theirs, i - 1)) break;
        if (same) break;
        *my_call = my_board, *their_call = their_board;
        differ = true;
    }
    return differ;
}

bool watch_log_ahead(const struct watch_log *mine, const struct watch_log *theirs, struct tutti_board *out)
{
    uint64_t their_n = atomic_load_explicit(&theirs->n, memory_order_acquire);
    if (their_n >= atomic_load_explicit(&mine->n, memory_order_acquire)) return false;
    read_entry(mine, their_n, out);
    return watch_log_keeps(mine, their_n);
}

/* False: more came meanwhile. While message n + 1 is written down, the hash of the first n stays. */
static bool read_letters(const struct watch_letters *letters, uint64_t *n, uint64_t *hash)
{
    *n = atomic_load_explicit(&letters->n, memory_order_acquire);
    *hash = WATCH_LOAD(letters->hash[*n % 2]);
    atomic_thread_fence(memory_order_acquire);
    return WATCH_LOAD(letters->n) == *n;
}

/* Sizes of messages are compared where both sides have come equally far. */
static bool letters_differ(const struct watch_letters *sent, const struct watch_letters *received, uint64_t *n)
{
    uint64_t received_n, sent_hash, received_hash;
    return read_letters(sent, n, &sent_hash) && read_letters(received, &received_n, &received_hash) &&
           *n == received_n && sent_hash != received_hash;
}

bool watch_log_letters(const struct watch_pair *pair, uint64_t *n)
{
    return letters_differ(&pair->mine->sent[pair->peer], &pair->theirs->received[pair->me], n) ||
           letters_differ(&pair->theirs->sent[pair->me], &pair->mine->received[pair->peer], n);
}
