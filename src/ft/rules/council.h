/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_RULES_COUNCIL_H
#define TUTTI_FT_RULES_COUNCIL_H

/* Lighthouses that agree: one of them leads, and what it decides is kept by most of them before anybody hears of it. A
 * machine without sockets, files or clocks: messages and the time go in; messages, writes, and changes of the lead
 * come out. One lighthouse alone is the same with itself as the most.
 *
 * What is kept is a table of records, each a text by its key; there is no log, as only the last of each matters. It is
 * Paxos with a leader for many ballots ("Paxos made simple", L. Lamport, 2001), and a lease:
 *   - a ballot is a number that only one member can make. A candidate asks the others to promise that they take
 *     nothing of a smaller ballot any more; each that does says what it has. From most it takes the newest of each
 *     record, and has them kept anew by most with its own ballot: then it leads.
 *   - a record is decided when most keep it. Within a ballot records have numbers, so that an old message does nothing.
 *   - a follower promises nothing to others for `lease` after it heard of the leader, nor after its own start. A
 * leader leads for less than a lease after it asked most of them and they answered. So there are not two at once, as
 * long as clocks run at nearly the same speed. Nobody asks for promises before most have said that they would give
 * them: a member that was cut off for a time disturbs nobody when it is back. A leader that can not keep a record, as
 * its disk is full, leads no more, and lets others try first; one that is alone tries again.
 *
 * Thread: one at a time. Ownership: arguments are borrowed. Begin with council.c. */

#include "base/base.h"

#define TUTTI_COUNCIL_MOST 7u /* members */

struct tutti_record {
    const char *key; /* not empty */
    const uint8_t *bytes;
    size_t n;
    uint64_t ballot, number;
};

enum tutti_council_kind {
    TUTTI_COUNCIL_TRIAL,    /* would you promise? */
    TUTTI_COUNCIL_PREPARE,  /* promise */
    TUTTI_COUNCIL_PROMISE,  /* answers both; with all records, if it is one */
    TUTTI_COUNCIL_ACCEPT,   /* I lead; keep these */
    TUTTI_COUNCIL_ACCEPTED, /* kept, all up to this number */
    TUTTI_COUNCIL_N_KINDS
};
struct tutti_council_message {
    enum tutti_council_kind kind;
    uint32_t from;
    bool good, trial;         /* answers: it did; PROMISE: it would */
    uint64_t ballot;          /* that it is about */
    uint64_t promised;        /* answers: the largest that was promised */
    uint64_t number, sent_ns; /* ACCEPT: of the last record; the sender's clock. ACCEPTED: the same again */
    const struct tutti_record *records;
    uint32_t n_records;
};

struct tutti_council_options {
    uint32_t n, me;
    uint64_t lease_ns, beat_ns; /* beat: at most a third of the lease */
    uint64_t seed;
};
enum tutti_council_kept { TUTTI_COUNCIL_NOT_KEPT, TUTTI_COUNCIL_KEPT, TUTTI_COUNCIL_KEPT_LATER };
struct tutti_council_out {
    void *arg;
    void (*send)(void *arg, uint32_t to, const struct tutti_council_message *message);
    /* Writes it where it stays if the power fails; record NULL: the ballot alone. Nobody hears that it is kept before
     * it is: LATER is followed by tutti_council_kept. */
    enum tutti_council_kept (*keep)(void *arg, uint64_t promised, const struct tutti_record *record);
    /* It leads now (records: tutti_council_record), or does not any more. */
    void (*leads)(void *arg, bool leads);
    void (*decided)(void *arg, const struct tutti_record *record); /* what was proposed is kept by most */
};

struct tutti_council;
enum tutti_status tutti_council_create(const struct tutti_council_options *options, const struct tutti_council_out *out,
                                       struct tutti_council **made);
void tutti_council_destroy(struct tutti_council *council);
/* Before start: what was kept in an earlier run. */
enum tutti_status tutti_council_restore(struct tutti_council *council, uint64_t promised,
                                        const struct tutti_record *records, uint32_t n);
void tutti_council_start(struct tutti_council *council, uint64_t now);

void tutti_council_received(struct tutti_council *council, const struct tutti_council_message *message, uint64_t now);
/* The first n of the writes that were for LATER and are still open are over: kept, or none of them. A disk may take as
 * long as it likes: the leader goes on, and the others do. */
void tutti_council_kept(struct tutti_council *council, uint64_t n, bool good, uint64_t now);
void tutti_council_tick(struct tutti_council *council, uint64_t now);
uint64_t tutti_council_due(const struct tutti_council *council); /* when tick must be called */
/* The leader's: puts a record in the place of what the key had. `decided` follows, maybe at once. UNSUPPORTED: it does
 * not lead. MEMORY, SYSTEM: it is not kept here. */
enum tutti_status tutti_council_propose(struct tutti_council *council, const char *key, const uint8_t *bytes, size_t n,
                                        uint64_t now);

/* True if its lease covers `now`. The leader as far as it knows; UINT32_MAX: nobody. */
bool tutti_council_leads(const struct tutti_council *council, uint64_t now);
uint32_t tutti_council_leader(const struct tutti_council *council, uint64_t now);
uint32_t tutti_council_n_records(const struct tutti_council *council);
bool tutti_council_record(const struct tutti_council *council, const char *key, struct tutti_record *out);

#endif
