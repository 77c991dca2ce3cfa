/* SPDX-License-Identifier: BSD-3-Clause */

/* How the ownership goes from thread to thread. A waiting caller takes it if it is free; others sleep until their call
 * is complete, or until the owner leaves and hands over: to one of them, else to the helper (helper.c). */

#include "engine/owner/owner.h"

#define SPINS_ENTER 64 /* 1 to 3 us */
#define ENTER_NS (100 * TUTTI_NS_PER_MS)

void tutti_owner_init(struct tutti_owner *owner, uint64_t spin_ns)
{
    atomic_init(&owner->spin_ns, spin_ns);
    atomic_init(&owner->helper.prompt, true); /* until callers show otherwise */
    pthread_mutex_init(&owner->lock, NULL);
}

void tutti_owner_fini(struct tutti_owner *owner)
{
    pthread_mutex_destroy(&owner->lock);
}

bool tutti_owner_try(struct tutti_owner *owner)
{
    uint32_t free_word = 0;
    return atomic_load(&owner->want) == 0 && atomic_compare_exchange_strong(&owner->owned, &free_word, 1);
}

void tutti_owner_kick(struct tutti_owner *owner)
{
    if (atomic_load(&owner->sleeping) == 0) return;
    pthread_mutex_lock(&owner->lock);
    owner->ops->kick(owner->arg);
    pthread_mutex_unlock(&owner->lock);
}

/* Whether the owner gives way while one spins: one that is awake does so after its next pass. */
static bool owner_leaves(struct tutti_owner *owner)
{
    if (atomic_load_explicit(&owner->spin_ns, memory_order_relaxed) == 0) return false;
    for (int i = 0; i < SPINS_ENTER; i++) {
        if (atomic_load_explicit(&owner->owned, memory_order_relaxed) == 0) return true;
        tutti_cpu_relax();
    }
    return false;
}

void tutti_owner_enter(struct tutti_owner *owner)
{
    uint32_t free_word = 0;

    atomic_fetch_add(&owner->want, 1);
    while (!atomic_compare_exchange_strong(&owner->owned, &free_word, 1)) {
        tutti_owner_kick(owner);
        if (!owner_leaves(owner))
            tutti_poller_wait_word(owner->poller, &owner->owned, 1, tutti_owner_deadline(owner, ENTER_NS));
        free_word = 0;
    }
    atomic_fetch_sub(&owner->want, 1);
}

/* Somebody must own while there is work: a waiting caller, else the helper. */
void tutti_owner_hand_over(struct tutti_owner *owner)
{
    bool found = false;

    if (atomic_load(&owner->want) > 0 || atomic_load(&owner->owned)) return;
    if (atomic_load(&owner->n_waiters) > 0) {
        pthread_mutex_lock(&owner->lock);
        if (owner->waiters) {
            found = true;
            atomic_store(&owner->waiters->word, 1);
            tutti_futex_wake(&owner->waiters->word, 1);
        }
        pthread_mutex_unlock(&owner->lock);
    }
    if (!found && tutti_owner_needed(owner)) tutti_helper_call(owner);
}

void tutti_owner_leave(struct tutti_owner *owner)
{
    atomic_store(&owner->owned, 0);
    if (atomic_load(&owner->want) > 0) tutti_futex_wake(&owner->owned, UINT32_MAX);
    tutti_owner_hand_over(owner);
}

void tutti_owner_wake(struct tutti_owner *owner, const void *key)
{
    if (atomic_load(&owner->n_waiters) == 0) return;
    pthread_mutex_lock(&owner->lock);
    for (struct tutti_waiter *w = owner->waiters; w; w = w->next) {
        if (w->key != key) continue;
        atomic_store(&w->word, 1);
        tutti_futex_wake(&w->word, 1);
    }
    pthread_mutex_unlock(&owner->lock);
}
