/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_FLAT_STEPS_H
#define TUTTI_TESTS_FLAT_STEPS_H

/* Between any two steps of a method a test may do what it likes: the functions by which methods wait, tell and move
 * bytes are wrapped by the linker (CMakeLists.txt has their list), and call this before and after. */
extern void (*_Atomic steps_between)(void); /* NULL: nothing */

/* Faults that are planted to see them found: a wait that is forgotten. */
enum steps_flaw {
    FLAW_NONE,
    FLAW_ROOM,       /* slots are written without room in them */
    FLAW_ROUND_ROOM, /* staging memory, too */
    FLAW_READ,       /* rounds are told as read one too early */
    FLAW_STAGED,     /* the same of rounds that are staged */
    FLAW_LEFT,       /* a root leaves before its readers */
    FLAW_MEET,       /* nobody waits at the barriers inside operations */
    FLAW_ASLEEP,     /* a sleeper does not count itself (rig.c) */
    FLAW_TREE,       /* one that is woken does not wake the next (rig.c) */
    N_FLAWS
};
extern enum steps_flaw steps_flaw;

#endif
