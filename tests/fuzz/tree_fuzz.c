/* SPDX-License-Identifier: BSD-3-Clause */

/* The messages of the tree. What decodes encodes to the same bytes; and whatever the other ends of its links send, a
 * member does to no member that is none, sends nothing where no link is, and stays within its tables. */

#include "control/tree/machine.h"
#include "fuzz.h"

enum { HOSTS = 3, MEMBERS = 6, ME = 2, PARENT = 0, NEIGHBOUR = 3 };

static struct tutti_tree_machine machine;
static _Atomic uint8_t lives[MEMBERS];
static struct tutti_tree_link links[MEMBERS];
static uint32_t linked[MEMBERS];

static void check_send(void *arg, uint32_t member, const uint8_t *bytes, size_t n)
{
    struct tutti_tree_message message;
    (void)arg;
    FUZZ_CHECK(member < MEMBERS && member != ME && links[member].open);
    FUZZ_CHECK(tutti_tree_decode(bytes, n, MEMBERS, &message) == TUTTI_OK);
}

static void check_dial(void *arg, uint32_t member)
{
    (void)arg;
    FUZZ_CHECK(member < MEMBERS && member != ME);
}

static void check_gone(void *arg, uint32_t member, enum tutti_life life)
{
    (void)arg;
    FUZZ_CHECK(member < MEMBERS && member != ME && tutti_life_gone(life));
}

static void check_failure(void *arg, const struct tutti_failure *failure)
{
    (void)arg;
    FUZZ_CHECK(failure->error.status < 0 && memchr(failure->error.text, 0, sizeof failure->error.text));
}

static bool check_board(void *arg, uint32_t member, uint32_t slot, struct tutti_board *out)
{
    (void)arg;
    FUZZ_CHECK(slot < TUTTI_BOARD_ASKED && member / 2 == ME / 2); /* on its own host */
    *out = (struct tutti_board){.seq = slot};
    return true;
}

static void check_answer(void *arg, const struct tutti_tree_question *question, const struct tutti_board *board)
{
    (void)arg, (void)board;
    FUZZ_CHECK(question->origin == ME && question->target < MEMBERS && question->slot < TUTTI_BOARD_ASKED);
}

static void machine_begin(void)
{
    static struct tutti_host_row rows[HOSTS];
    static struct tutti_member_row members[MEMBERS];
    static const struct tutti_hosts hosts = {.n_hosts = HOSTS, .n_members = MEMBERS, .hosts = rows, .members = members};
    for (uint32_t h = 0; h < HOSTS; h++) rows[h] = (struct tutti_host_row){.leader = 2 * h, .n = 2};
    for (uint32_t i = 0; i < MEMBERS; i++) members[i] = (struct tutti_member_row){.host = i / 2, .local = i % 2};
    for (uint32_t i = 0; i < MEMBERS; i++) lives[i] = TUTTI_LIFE_ALIVE;
    memset(links, 0, sizeof links);
    machine = (struct tutti_tree_machine){
        .hosts = &hosts,
        .me = ME,
        .n = MEMBERS,
        .silence_ns = TUTTI_NS_PER_S,
        .out = {NULL, check_send, check_dial, check_dial, check_gone, check_failure, check_board, check_answer},
        .lives = lives,
        .links = links,
        .linked = linked};
    tutti_tree_begin(&machine, 1);
    tutti_tree_linked(&machine, PARENT, 2);
    tutti_tree_linked(&machine, NEIGHBOUR, 3);
}

/* The bytes as frames that come in turns from its links; what is no frame ends the run. */
static void check_machine(const uint8_t *bytes, size_t n)
{
    uint64_t now = 4;
    machine_begin();
    for (size_t at = 0, frame; (frame = tutti_tree_frame_bytes(bytes + at, n - at)) > 0 && frame <= n - at; at += frame)
        tutti_tree_received(&machine, at % 2 ? NEIGHBOUR : PARENT, bytes + at, frame, now++);
    tutti_tree_tick(&machine, now + TUTTI_NS_PER_S / 10);
    FUZZ_CHECK(lives[ME] == TUTTI_LIFE_ALIVE && machine.n_linked <= MEMBERS && machine.n_raised <= TUTTI_TREE_RAISED);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct tutti_tree_message message;
    uint8_t again[TUTTI_TREE_FRAME_MAX];
    tutti_log_threshold = TUTTI_LOG_ERROR; /* refusals are the rule */
    check_machine(bytes, n);
    if (tutti_tree_decode(bytes, n, MEMBERS, &message) != TUTTI_OK) return 0;
    FUZZ_CHECK(tutti_tree_encode(&message, again) == n && memcmp(again, bytes, n) == 0);
    FUZZ_CHECK(tutti_tree_decode(bytes, n - 1, MEMBERS, &message) != TUTTI_OK);
    return 0;
}
