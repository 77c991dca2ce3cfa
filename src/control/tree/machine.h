/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_TREE_MACHINE_H
#define TUTTI_CONTROL_TREE_MACHINE_H

/* One member of the tree as a state machine: events and the time go in, messages and news come out. No sockets, threads
 * or clocks, and nothing is allocated after init. tree.h says what the tree does.
 *
 * A link is a connection to another member; there is at most one to each. Who hangs on a member dials it. All of what
 * one end of a new link knows (who is gone, which communicators have ended) it tells the other end first; what is new
 * to that one it tells on. So all members come to know the same, whatever links end meanwhile. */

#include "control/hosts.h"
#include "control/tree/message.h"

#define TUTTI_TREE_FANOUT 32
#define TUTTI_TREE_VOICES 3  /* so many members of a host are asked before it is taken for dead */
#define TUTTI_TREE_ASKED 256 /* at once, of all hosts */
#define TUTTI_TREE_TOLD 64   /* failures that are remembered for who links anew */
#define TUTTI_TREE_RAISED 64 /* own failures that no root has told yet */

/* What the edge does. */
struct tutti_tree_out {
    void *arg;
    void (*send)(void *arg, uint32_t member, const uint8_t *bytes, size_t n); /* on the link to it */
    void (*dial)(void *arg, uint32_t member);                        /* opened, refused or unreachable follows */
    void (*drop)(void *arg, uint32_t member);                        /* ends the link */
    void (*gone)(void *arg, uint32_t member, enum tutti_life life);  /* news: LEFT, DEAD, SILENT; final */
    void (*failure)(void *arg, const struct tutti_failure *failure); /* news: the same at all members */
    bool (*board)(void *arg, uint32_t member, uint32_t slot,
                  struct tutti_board *out); /* reads the board of a member of this host */
    void (*answer)(void *arg, const struct tutti_tree_question *question, const struct tutti_board *board);
};

struct tutti_tree_link {
    bool open;
    bool dialing;               /* by this member */
    bool feared;                /* in a doubt: nothing is heard of it, and the tree may be without it soon */
    bool extra;                 /* it was dialed in a doubt, and the tree may not need it */
    uint64_t heard_ns, sent_ns; /* when something came last, was sent last */
    uint64_t asked_ns;          /* not open: since when it should be; 0: it need not */
};
struct tutti_tree_machine {
    const struct tutti_hosts *hosts;
    uint32_t me, n;
    uint64_t silence_ns, now;
    struct tutti_tree_out out;
    _Atomic uint8_t *lives;        /* n, enum tutti_life; others may read them */
    struct tutti_tree_link *links; /* n */
    uint32_t *linked;              /* members with an open link */
    uint32_t n_linked;
    uint32_t parent; /* UINT32_MAX: this is the root */
    bool lost;       /* this member was told dead */
    bool whole;      /* all links that this member should have were open at once */
    bool doubts;     /* somebody on whom this member's place depends has not been heard for a while */
    bool extras;     /* some links were dialed in a doubt */
    uint32_t width;  /* so many members are asked at once who may be the next parent; 0: the parent is there */
    uint64_t widened_ns, doubts_until_ns;
    uint64_t begun_ns;
    uint64_t ticked_ns, away_until_ns; /* the last tick; after this member was stopped, it knows no deaths by then */
    uint64_t settled_ns;               /* a new root decides nothing before */
    struct tutti_failure told[TUTTI_TREE_TOLD], raised[TUTTI_TREE_RAISED]; /* told: a ring */
    uint32_t n_told, n_raised;
};

/* lives, links and linked are n zeroed entries each; they and the table belong to the caller. */
void tutti_tree_begin(struct tutti_tree_machine *t, uint64_t now); /* dials the parent */
void tutti_tree_linked(struct tutti_tree_machine *t, uint32_t member, uint64_t now);
void tutti_tree_received(struct tutti_tree_machine *t, uint32_t member, const uint8_t *bytes, size_t n, uint64_t now);
/* The link ended or broke without UNLINK or its LEFT: the kernel closed it, so the process is gone. */
void tutti_tree_broken(struct tutti_tree_machine *t, uint32_t member, uint64_t now);
/* The network gave the link up: that says nothing of the process. */
void tutti_tree_ended(struct tutti_tree_machine *t, uint32_t member, uint64_t now);
/* What was dialed can not be linked. dead: nobody is there, or it refuses this member as dead. */
void tutti_tree_unreachable(struct tutti_tree_machine *t, uint32_t member, bool dead, uint64_t now);
/* Another connection of it was closed by its kernel: the process has ended, whatever was thought of it before. */
void tutti_tree_is_proved(struct tutti_tree_machine *t, uint32_t member, uint64_t now);
/* A member of this host is gone, as its control says. */
void tutti_tree_local_gone(struct tutti_tree_machine *t, uint32_t member, enum tutti_life life, uint64_t now);
void tutti_tree_tick(struct tutti_tree_machine *t, uint64_t now); /* ten times a second or so */
void tutti_tree_raise(struct tutti_tree_machine *t, const struct tutti_failure *failure, uint64_t now);
void tutti_tree_ask(struct tutti_tree_machine *t, uint32_t member, uint32_t slot, uint64_t now);
/* Whether who leaves now is understood: what it told is on its way to all, and that it leaves will be. */
bool tutti_tree_may_leave(const struct tutti_tree_machine *t);
void tutti_tree_leave(struct tutti_tree_machine *t, uint64_t now); /* says that this member left, on all links */

/* shape.c; feared: the shape that is left if all who are feared for are gone, and VOICES silent members of another host
 * make it silent. */
/* The first living member of a host, which speaks for it; UINT32_MAX: nobody lives there. */
uint32_t tutti_tree_speaker(const struct tutti_tree_machine *t, uint32_t host, bool feared);
/* On whom a member hangs; UINT32_MAX: on nobody. */
uint32_t tutti_tree_parent_of(const struct tutti_tree_machine *t, uint32_t member, bool feared);
/* Those who speak for other hosts and hang on this member: returns how many, at most FANOUT; who fears to be the root,
 * or fears for some as the root, gets all hosts, at most ASKED. */
uint32_t tutti_tree_children(const struct tutti_tree_machine *t, uint32_t out[TUTTI_TREE_ASKED], bool feared);
/* Whether a link is open to the parent and to each one that hangs on this member. */
bool tutti_tree_is_whole(const struct tutti_tree_machine *t);
/* The link by which `target` is reached; UINT32_MAX: none. */
uint32_t tutti_tree_next_link(const struct tutti_tree_machine *t, uint32_t target);
static inline bool tutti_tree_is_gone(const struct tutti_tree_machine *t, uint32_t member)
{
    return tutti_life_gone((enum tutti_life)t->lives[member]);
}

#endif
