/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine of src/comm/life/synchrony.h for three ranks and two calls, of which up to two ranks die at any moment.
 * Checked by
 *
 *     spin -search -O2 -DCOLLAPSE -DMEMLIM=6000 -m200000 docs/synchrony.pml
 *     spin -DCUT -DDEATHS=0 -DKIND=LARGE -search -O2 -DCOLLAPSE -DMEMLIM=6000 -m200000 docs/synchrony.pml
 *
 * which tries every order of events for every pair of kinds of calls (KIND: the first call's alone): whoever returns from
 * all calls has the same results as every other rank that does, results are those of one view, and nobody waits for
 * ever. With CUT the network parts one rank from the others, or stops it, at any moment, and may come back at any moment:
 * then the side of the majority goes on, the other one ends, and where nobody died somebody is left. With -DFLAW=1 calls
 * are not committed, with -DFLAW=2 both sides go on: spin finds both at once.
 *
 * A collective of a view is an operation (epoch, number); it is done at a rank once it has heard that all have begun it,
 * or, of a broadcast, that the root has; where a member of the view is dead, or silent, it may be lost instead. */

#ifndef DEATHS
#define DEATHS 2
#endif
#ifndef FLAW
#define FLAW 0
#endif
#define N 3
#define CALLS 2
#define EPOCHS 5 /* from 1: one more than may be lost, and one that stays empty */
#define OPS 6    /* of a view, from 0 */
#define NONE 7
#define BIT(r) (1 << (r))

mtype = {DATA, COMMIT, RETURN, TAKE, AGREE, GATHER, HAND_ON, LEFT};
mtype:kind = {SMALL, SMALL_BROADCAST, LARGE, LARGE_BROADCAST};

typedef View {
    byte members;
    bool failed;
    byte before, adopted; /* the epoch that it follows; who is in it */
    byte heard[OPS * N];  /* of those that began, by member */
    byte began[OPS];
    mtype what[OPS];
    byte call[OPS], from[OPS], value[OPS];
    byte have[N], kept[N], held[N]; /* what was gathered; a view gathers once */
};
View views[EPOCHS];
byte n_views = 1, alive = 7, agreed[N];
byte cut, unproved;   /* a side of the cut; those whose end the others can not know */
byte silent[N];       /* those that a member takes for dead */
mtype:kind kinds[CALLS + 1];
byte root;
byte results[N * (CALLS + 1)]; /* by rank and call: the set of contributors, plus 8 */
byte kept_results[N * (CALLS + 1)];

#define KEEPS(c) (kinds[c] == SMALL || kinds[c] == SMALL_BROADCAST)
#define SYNCS(c) (kinds[c] == SMALL || kinds[c] == LARGE)
#define V views[epoch]
#define SIDE (cut == 0 -> 7 : ((cut & BIT(me)) -> cut : (7 & ~cut)))

inline begin(call_of, from_of, value_of)
{
    if
    :: V.began[op] == 0 -> V.what[op] = doing; V.call[op] = call_of; V.from[op] = from_of; V.value[op] = 0
    :: else -> assert(V.what[op] == doing && V.call[op] == call_of && V.from[op] == from_of)
    fi;
    if
    :: from_of == me -> V.value[op] = value_of
    :: else
    fi;
    V.began[op] = V.began[op] | BIT(me);
    m = 0;
    do
    :: m == N -> break
    :: else ->
        if
        :: SIDE & BIT(m) -> V.heard[op * N + m] = V.heard[op * N + m] | BIT(me)
        :: else
        fi;
        m++
    od
}

#define HEARD (V.heard[op * N + me] | (V.began[op] & SIDE)) /* what a cut held up comes when it ends */
#define IS_DONE                                                                                                        \
    ((V.from[op] == NONE && HEARD == V.members) || (V.from[op] != NONE && !(V.members & BIT(V.from[op]))) ||           \
     (V.from[op] != NONE && (V.from[op] == me || (HEARD & BIT(V.from[op])))))
#define HERE (V.members & alive & SIDE & ~silent[me])
#define GONE (V.members & ~alive & ~unproved & ~silent[me])
#define MISSING (V.members & ~(HERE) & ~(GONE))
#define COUNT(x) (((x) & 1) + (((x) >> 1) & 1) + (((x) >> 2) & 1))
#define LOWEST(x) (((x) & 1) -> 1 : (((x) & 2) -> 2 : ((x) & 4)))
#define MAJORITY                                                                                                       \
    (FLAW == 2 || COUNT(HERE) > COUNT(MISSING) ||                                                                      \
     (COUNT(HERE) == COUNT(MISSING) && ((HERE) & LOWEST((HERE) | (MISSING)))))
#define DECIDED(v) (views[v].before == epoch && (views[v].adopted & V.members & SIDE & ~silent[me]))
#define ANY_DECIDED (DECIDED(1) || DECIDED(2) || DECIDED(3) || DECIDED(4))
#define AGREES(r) (!((HERE) & BIT(r)) || agreed[r] == epoch)
#define ALL_AGREE (AGREES(0) && AGREES(1) && AGREES(2))
#define MAY_LOSE (V.failed || (V.members & ~(HERE)) || ANY_DECIDED)

/* This side hears nothing of the other. */
inline hear_silence()
{
    m = 0;
    do
    :: m == N || cut == 0 -> break
    :: else ->
        if
        :: SIDE & BIT(m) -> silent[m] = silent[m] | (V.members & ~(SIDE))
        :: else
        fi;
        m++
    od
}

/* The call at hand is decided here, with the own result. */
inline over()
{
    if
    :: doing == COMMIT -> kept = called
    :: else
    fi;
    have = called; held = 0;
    if
    :: !KEEPS(called) -> kept = called + 1
    :: else
    fi;
    doing = RETURN
}

inline own_it()
{
    have++; held = 0; owns = true;
    if
    :: !KEEPS(have) -> kept = have + 1
    :: else
    fi
}

/* Of what was gathered: the next result that some lack, and who has it. */
inline hand_on()
{
    do
    :: handed > last -> break
    :: else ->
        wanted = false; from = NONE; m = N;
        do
        :: m == 0 -> break
        :: else ->
            m--;
            if
            :: V.members & BIT(m) ->
                wanted = wanted || (V.have[m] < handed && !(V.have[m] + 1 == handed && V.held[m] > 0));
                if
                :: V.have[m] >= handed && V.kept[m] <= handed -> from = m
                :: else
                fi
            :: else
            fi
        od;
        if
        :: wanted -> assert(from != NONE); break
        :: else
        fi;
        if
        :: have < handed -> own_it()
        :: else
        fi;
        handed++
    od;
    if
    :: handed <= last -> doing = HAND_ON
    :: else ->
        if
        :: commits -> own_it()
        :: else
        fi;
        held = 0;
        if
        :: called > have -> doing = DATA
        :: called <= have && owns -> doing = RETURN
        :: called <= have && !owns -> doing = TAKE
        fi
    fi
}

inline conclude()
{
    handed = 99; last = 0; commits = true; first = NONE; m = 0;
    do
    :: m == N -> break
    :: else ->
        if
        :: V.members & BIT(m) ->
            if
            :: V.have[m] > last -> last = V.have[m]
            :: else
            fi;
            if
            :: V.have[m] + 1 < handed -> handed = V.have[m] + 1
            :: else
            fi;
            if
            :: first == NONE -> first = m
            :: else
            fi
        :: else
        fi;
        m++
    od;
    m = 0;
    do
    :: m == N -> break
    :: else ->
        if
        :: (V.members & BIT(m)) && (V.have[m] != last || V.held[m] == 0 || V.held[m] != V.held[first]) ->
            commits = false
        :: else
        fi;
        m++
    od;
    hand_on()
}

proctype rank(byte me)
{
    byte have = 0, kept = 1, held = 0, epoch = 1, called = 1, op = 0;
    byte output = 0, handed = 0, last = 0, from = NONE, m, first;
    bool owns = false, commits = false, wanted;
    mtype doing = DATA;

    do
    :: atomic { !(alive & BIT(me)) -> break }
    :: atomic { (alive & BIT(me)) && (doing == RETURN || doing == TAKE) ->
        assert(results[me * (CALLS + 1) + called] == 0);
        if
        :: doing == TAKE -> output = kept_results[me * (CALLS + 1) + called]
        :: else
        fi;
        results[me * (CALLS + 1) + called] = 8 + output;
        if
        :: called == CALLS ->
            alive = alive & ~BIT(me);
            unproved = (cut -> unproved | BIT(me) : unproved);
            doing = LEFT; break
        :: else -> called++; owns = false;
            if
            :: called <= have -> doing = TAKE
            :: else -> doing = DATA
            fi
        fi }
    :: atomic { (alive & BIT(me)) && doing == AGREE && agreed[me] != epoch -> agreed[me] = epoch; hear_silence() }
    :: atomic { (alive & BIT(me)) && doing == AGREE && agreed[me] == epoch &&
                (ANY_DECIDED || (ALL_AGREE && ((HERE) == 0 || LOWEST(HERE) == BIT(me) || !(MAJORITY)))) ->
        hear_silence();
        m = 1;
        do
        :: m > n_views -> break
        :: m <= n_views && DECIDED(m) -> break
        :: else -> m++
        od;
        if
        :: m <= n_views && !(views[m].members & BIT(me)) -> m = 0 /* the others went on without it */
        :: m <= n_views && (views[m].members & BIT(me)) -> skip
        :: m > n_views && !(MAJORITY) -> m = 0
        :: m > n_views && (MAJORITY) -> /* nobody decided: the lowest does */
            n_views++;
            assert(n_views < EPOCHS);
            views[n_views].members = HERE; views[n_views].before = epoch
        fi;
        if
        :: m == 0 -> alive = alive & ~BIT(me); doing = LEFT; break
        :: else ->
            epoch = m; V.adopted = V.adopted | BIT(me);
            op = 0; doing = GATHER
        fi }
    :: (alive & BIT(me)) && (doing == DATA || doing == COMMIT || doing == GATHER || doing == HAND_ON) ->
        atomic {
            if
            :: MAY_LOSE && doing != GATHER -> hear_silence(); V.failed = true
            :: doing == DATA && SYNCS(called) -> begin(called, NONE, 0)
            :: doing == DATA && !SYNCS(called) -> begin(called, root, BIT(me))
            :: doing == COMMIT -> begin(called, NONE, 0)
            :: doing == GATHER -> V.have[me] = have; V.kept[me] = kept; V.held[me] = held; begin(0, NONE, 0)
            :: doing == HAND_ON -> begin(handed, from, kept_results[me * (CALLS + 1) + handed])
            fi
        };
        atomic {
            if
            :: !(alive & BIT(me)) -> break
            :: (alive & BIT(me)) && MAY_LOSE -> hear_silence(); V.failed = true; doing = AGREE
            :: (alive & BIT(me)) && (V.began[op] & BIT(me)) && IS_DONE ->
                if
                :: doing == DATA ->
                    output = (V.from[op] == NONE -> V.members : V.value[op]);
                    if
                    :: KEEPS(called) -> kept_results[me * (CALLS + 1) + called] = output
                    :: else
                    fi;
                    op++;
                    if
                    :: SYNCS(called) -> kept = called
                    :: else
                    fi;
                    if
                    :: KEEPS(called) || FLAW == 1 -> over()
                    :: else -> held = epoch; doing = COMMIT
                    fi
                :: doing == COMMIT -> op++; over()
                :: doing == GATHER -> op++; conclude()
                :: doing == HAND_ON ->
                    if
                    :: handed > have -> kept_results[me * (CALLS + 1) + handed] = V.value[op]; have = handed; held = 0
                    :: else
                    fi;
                    op++; handed++; hand_on()
                fi
            fi
        }
    od
}

/* Up to two die. */
proctype death()
{
    byte n = 0, before = 0;
    do
    :: n < DEATHS -> atomic { n++;
        if
        :: alive = alive & ~BIT(0)
        :: alive = alive & ~BIT(1)
        :: alive = alive & ~BIT(2)
        fi;
        unproved = (cut -> unproved | (7 & ~alive & ~before) : unproved); before = 7 & ~alive }
    :: break
    od
}

/* One is cut off, or stopped; the network may come back: then who was taken for dead hears so. */
proctype network()
{
    byte i = 0, k;
    if
    :: cut = 1
    :: cut = 2
    :: cut = 4
    fi;
    if
    :: skip
    :: atomic {
        cut = 0;
        do
        :: i == N * N -> break
        :: else ->
            if
            :: silent[i / N] & BIT(i % N) -> silent[i % N] = silent[i % N] | BIT(i / N)
            :: else
            fi;
            i++
        od }
    fi
}

inline any_kind(k)
{
    if
    :: k = SMALL
    :: k = SMALL_BROADCAST
    :: k = LARGE
    :: k = LARGE_BROADCAST
    fi
}

init
{
    byte a, c;
    atomic {
#ifdef KIND
        kinds[1] = KIND;
#else
        any_kind(kinds[1]);
#endif
        kinds[CALLS] = LARGE;
        if
        :: root = 0
        :: kinds[1] == SMALL_BROADCAST || kinds[1] == LARGE_BROADCAST -> root = 1
        fi;
        views[1].members = 7; views[1].adopted = 7;
        run rank(0); run rank(1); run rank(2);
        if
        :: DEATHS > 0 -> run death()
        :: else
        fi;
#ifdef CUT
        run network();
#endif
        skip
    };
    _nr_pr == 1; /* all are over */
    assert(DEATHS > 0 || results[CALLS] || results[CALLS + 1 + CALLS] || results[2 * (CALLS + 1) + CALLS]);
    c = 1;
    do
    :: c > CALLS -> break
    :: else ->
        a = 0;
        do
        :: a == N -> break
        :: else ->
            assert(results[a * (CALLS + 1) + CALLS] == 0 || results[((a + 1) % N) * (CALLS + 1) + CALLS] == 0 ||
                   results[a * (CALLS + 1) + c] == results[((a + 1) % N) * (CALLS + 1) + c]);
            a++
        od;
        c++
    od
}
