/* SPDX-License-Identifier: BSD-3-Clause */

/* Boards: memory of the host in which members of an instance show one another what they called. Peers may be reading a
 * board, or be about to map it, when its owner closes: it is retired then, and given back when all have let go of it,
 * at the next opening or closing. */

#include "backend/nccl/nccl.h"
#include "backend/shared.h"

struct retired {
    struct retired *next;
    struct tutti_transport *transport; /* NULL: closed */
    struct nccl_board *board;
    bool addresses;
};

static struct {
    pthread_mutex_t lock;
    struct retired *first;
} graveyard = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void board_free(const struct nccl_backend *b)
{
    tutti_shared_free(b->transport, b->addresses, b->boards[b->me], sizeof(struct nccl_board));
}

/* Without memory for the note it stays taken. */
static void retire(const struct nccl_backend *b)
{
    struct retired *r = tutti_alloc(sizeof *r);
    if (!r) return;
    r->transport = b->transport, r->board = b->boards[b->me], r->addresses = b->addresses;
    pthread_mutex_lock(&graveyard.lock);
    r->next = graveyard.first;
    graveyard.first = r;
    pthread_mutex_unlock(&graveyard.lock);
}

void nccl_boards_sweep(struct tutti_transport *transport, bool closes)
{
    pthread_mutex_lock(&graveyard.lock);
    for (struct retired **at = &graveyard.first; *at;) {
        struct retired *r = *at;
        const bool over = (r->addresses || r->transport == transport) && atomic_load(&r->board->refs) == 0;
        const bool goes = closes && r->transport == transport && !r->addresses; /* with the transport's memory */
        if (over) tutti_shared_free(r->transport, r->addresses, r->board, sizeof(struct nccl_board));
        if (closes && r->transport == transport) r->transport = NULL;
        if (over || goes) {
            *at = r->next;
            tutti_free(r);
        } else {
            at = &r->next;
        }
    }
    pthread_mutex_unlock(&graveyard.lock);
}

enum tutti_status nccl_board_open(struct nccl_backend *b, uint64_t *where)
{
    void *board;
    b->addresses = b->n == 1 || (b->transport->caps & TUTTI_CAP_ADDRESSES);
    nccl_boards_sweep(b->transport, false);
    TUTTI_TRY(tutti_shared_open(b->transport, b->addresses, sizeof(struct nccl_board), "log", &board, where));
    b->boards[b->me] = board;
    atomic_store(&b->boards[b->me]->refs, b->n);
    return TUTTI_OK;
}

/* Each member that connects lets go of all boards. Where nobody does, the owner's goes; where nobody knows, it stays.
 */
void nccl_boards_close(struct nccl_backend *b)
{
    for (uint32_t r = 0; r < b->n; r++) {
        if (!b->boards[r]) continue;
        const bool last = atomic_fetch_sub(&b->boards[r]->refs, 1) == 1;
        if (r != b->me) continue;
        if (last || (b->alone && !b->connected))
            board_free(b);
        else
            retire(b);
    }
    nccl_boards_sweep(b->transport, false);
}
