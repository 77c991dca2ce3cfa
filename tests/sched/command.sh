#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# usage: command.sh TUTTI SOURCE CC. Types what a user would, and compares exit statuses and words.
set -u
tutti=$1 source=$2 cc=$3
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export XDG_CACHE_HOME=$work/cache

. "$source/tests/sched/expect.sh"

plugin() { # NAME FILE
    "$cc" -shared -fPIC -I"$source/include" "$2" -o "$work/$1.so" || { echo "FAILED: $2 does not compile"; failed=1; }
}

# Every tag of an XML file is closed in order, and no ampersand is bare.
well_formed() {
    grep -nE '&([^a-z]|$)' "$1" && return 1
    awk 'BEGIN { RS = "<" }
         NR == 1 || /^[?!]/ { next }
         { tag = $0; sub(/>.*/, "", tag); name = tag; sub(/[ \/\n].*/, "", name) }
         /^\// { close_name = substr(tag, 2); if (depth == 0 || open[depth--] != close_name) bad = 1; next }
         tag !~ /\/$/ { open[++depth] = name }
         END { exit bad || depth != 0 }' "$1"
}

# ---- list ----
expect 0 '^ring .*commutative .*all_reduce' "$tutti" sched list
for kind in all_reduce reduce broadcast all_gather gather scatter reduce_scatter all_to_all barrier scan exscan; do
    expect 0 "( |^)$kind( |\$)" "$tutti" sched list
done
expect 0 'VERB --help' "$tutti" sched --help
expect 2 "did you mean 'tutti sched check'" "$tutti" sched chek

# ---- startup: 40 hosts of 3 ranks are a tree of three levels; the store hears 6 operations of a host's first rank, 5 of
# the leader, and 2 of the others, and a rank says hello, proof and acknowledgement ----
expect 0 '^120 ranks on 40 hosts: every rank can send after 0\.' "$tutti" sched startup --world 3x40
expect 0 '^6 ranks on 1 host:' "$tutti" sched startup --world 6
expect 0 "\"store\":\{\"messages\":$((2 * (39 * 6 + 5 + 80 * 2)))," "$tutti" sched startup --world 3x40 --json
expect 0 '"leader":\{"messages":[0-9]+,"bytes":[0-9]+,"busy_s":[0-9.]+,"connections":35\}' \
    "$tutti" sched startup --world 3x40 --json
expect 0 "\"rank\":\{\"messages\":$((2 * 2 + 5))," "$tutti" sched startup --world 3x40 --json --open
[ "$("$tutti" sched startup --world 3x40 --spread 1ms --json | sed 's/"seconds".*//')" = \
  "$("$tutti" sched startup --world 3x40 --spread 1ms --json | sed 's/"seconds".*//')" ] ||
    { echo "FAILED: startup differs from run to run"; failed=1; }
expect 2 'give ranks a host x hosts' "$tutti" sched startup --world 0x4
expect 2 'give ranks a host x hosts' "$tutti" sched startup --world 8x8x8

# ---- show ----
expect 0 'round 7 ' "$tutti" sched show ring --size 5
expect 0 'o--4--\+' "$tutti" sched show ring --size 5 --ascii
expect 0 '^proved' "$tutti" sched show tree --kind broadcast --size 8 --root 3 --radix 4
expect 0 'recv-reduce +3 from rank 1 .* -$' "$tutti" sched show ring --size 4 --rank 2
expect 0 'levels 3,2' "$tutti" sched show hierarchical --levels 3,2
expect 0 'reduce 0-?' "$tutti" sched show hierarchical --levels 3,2 --calls --ascii
expect 0 'wrote ring.svg' "$tutti" sched show ring --size 8 --svg ring.svg
expect 0 'wrote calls.svg' "$tutti" sched show hierarchical --levels '2,3;2' --calls --svg calls.svg
for file in ring.svg calls.svg; do
    well_formed "$file" || { echo "FAILED: $file is not well-formed"; failed=1; }
done
[ "$(grep -c '<g><title>round' ring.svg)" -eq 112 ] || { echo "FAILED: not 14 rounds of 8 messages"; failed=1; }
printf '<svg><g></svg></g>' >bad.svg
well_formed bad.svg && { echo "FAILED: the test of well-formedness can not fail"; failed=1; }
expect 2 "did you mean 'ring'" "$tutti" sched show rnig
expect 2 'did you mean --kind all_reduce' "$tutti" sched show ring --kind allreduce
expect 2 'ranks 0 to 3' "$tutti" sched show ring --size 4 --rank 4
expect 2 'needs levels' "$tutti" sched show hierarchical --size 4
expect 2 'hold 4, but there are 5 ranks' "$tutti" sched show hierarchical --size 5 --levels 2,2
expect 2 'tutti sched show ring --size 8' "$tutti" sched show
expect 2 'give --size between 1 and' "$tutti" sched show ring --size 0
expect 2 '--levels 8,x: give sizes of groups' "$tutti" sched show hierarchical --levels 8,x
expect 1 'cannot write' "$tutti" sched show ring --size 3 --svg "$work/none/x.svg"

# ---- export ----
expect 0 '^num_ranks 16$' "$tutti" sched export ring --world 16 -b 64K --format goal
"$tutti" sched export ring --world 16 -b 64K --format goal --output ring.goal
expect 0 'time +902.100 us' "$tutti" sched sim ring.goal
expect 0 'coll="allgather" inplace="1" outofplace="1"' "$tutti" sched export bruck --kind all_gather --world 4x2
expect 1 'MSCCL has no barrier' "$tutti" sched export dissemination --kind barrier
expect 1 'the root of a plan of MSCCL is 0, not 2' "$tutti" sched export tree --kind broadcast --root 2
expect 1 'cannot write' "$tutti" sched export ring --output none/x.xml
expect 2 "there is no format 'xml'" "$tutti" sched export ring --format xml
expect 2 'needs levels' "$tutti" sched export hierarchical --world 6
echo '{}' >plan.json
expect 1 'plan.json:1: "name" is missing' "$tutti" sched check ./plan.json

# ---- check ----
expect 0 '^7 of 7 proved on ' "$tutti" sched check ring --sizes 1-9
expect 0 '^1 of 1 proved on 1 shape in' "$tutti" sched check tree:4 --kind reduce --sizes 9 --root 5
expect 0 '^8 of 8 proved on 8 shapes' "$tutti" sched check hierarchical --levels 8,8,7,8
expect 2 'give a range such as 1-64' "$tutti" sched check ring --sizes 9-1
expect 2 'nothing to check: hierarchical can not run scan with 64 ranks: it does not offer it' "$tutti" sched check hierarchical --kind scan
expect 2 'nothing to check: tree can not run all_reduce with 4 ranks: the root is none of them' "$tutti" sched check tree --root 99 --sizes 4
for verb in check show; do
    expect 2 'ring has no radix: leave :3 out' "$tutti" sched $verb ring:3
    expect 2 'ring has no radix: leave --radix 3 out' "$tutti" sched $verb ring --radix 3
    expect 2 'two radices: tree:4 and --radix 3' "$tutti" sched $verb tree:4 --radix 3
done
expect 2 'dissemination can not run scan with 8 ranks: it has no radix' "$tutti" sched show dissemination:3 --kind scan
expect 0 '^1 of 1 proved on 1 shape in' "$tutti" sched check dissemination:3 --sizes 9
expect 0 '^1 of 1 proved on 1 shape in' "$tutti" sched check hierarchical:1 --levels 3,2 --kind all_reduce
# Large worlds by sample, all of the table by several processes, and refusals made small and drawn.
expect 0 'by sample: these steps alone; contents of 4 of 4096 chunks, followed to 16384 of their 16384 results' "$tutti" sched check ring --kind all_reduce --world 4096
expect 0 'by sample: all steps of all ranks are checked; contents of 1 of 64 chunks' "$tutti" sched check ring --kind all_gather --world 8x8 --sample 1
expect 0 '^1 of 1 proved on 1 shape in .*: 4096 schedules, [0-9]* steps' "$tutti" sched check tree --kind all_reduce --world 4096
expect 0 '^5[0-9] of 5[0-9] proved on ' "$tutti" sched check --all --sizes 6-8 --jobs 2
expect 2 "leave 'ring' out" "$tutti" sched check ring --all
expect 2 '--sample 3 and --full: give one of them' "$tutti" sched check ring --sample 3 --full
expect 2 '--world says all that --sizes and --levels say' "$tutti" sched check ring --world 8 --sizes 8
expect 0 '^[0-9]* of [0-9]* mutants caught by 39 rules in .*, 0 missed$' "$tutti" sched mutants
expect 0 '^lose hazard  *sealer ' "$tutti" sched mutants ring --sites 2 --seed 3 --verbose
expect 2 'give 1 to 1000' "$tutti" sched mutants --sites 0

# ---- search: what it stores is proved, and found again ----
expect 0 'all_reduce, 4 ranks, 65536 bytes on ports' "$tutti" sched search --world 4 --bytes 64K --seconds 0
expect 0 "library's choice" "$tutti" sched search --world 4x2 --bytes 64K --net fat_tree --seconds 1s --store --tuning "$work/found.tune"
expect 0 '' grep -q '^found all_reduce 4x2 49152 98304 ' "$work/found.tune"
found=$(awk '/^found/ { print $6 }' "$work/found.tune")
expect 0 '1 of 1 proved on 1 shape' "$tutti" sched check "$found" --kind all_reduce --world 4x2
expect 2 '--world 1: give 2 to' "$tutti" sched search --world 1
expect 2 'the blocks of 8 ranks would be empty' "$tutti" sched search --kind all_gather --bytes 8
# What was found stands before what is said about it, in one file too.
"$tutti" sched check tree --root 99 --sizes 4 >both 2>&1
tail -n 2 both | head -n 1 | grep -q 'nothing to check' || { echo "FAILED: the sentence does not come last"; failed=1; }

# ---- plug-ins ----
# The example of the documentation, as it stands there.
{
    echo '#include <tutti/schedule.h>'
    awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' "$source/docs/schedules.md"
} | sed 's/tutti_algorithm_mine/tutti_algorithm/' >mine.c
plugin mine mine.c
plugin wrong "$source/tests/sched/wrong.c"
plugin hangs "$source/tests/sched/hangs.c"
sed 's/"mine"/"crashes"/; s/return s->size - 1;/if (s->size == 1) __builtin_trap(); &/' mine.c >crashes.c
plugin crashes crashes.c
echo 'int other = 1;' >other.c
plugin other other.c
expect 0 '^1 of 1 proved' "$tutti" sched check ./mine.so --sizes 1-20
expect 0 'round 3 ' "$tutti" sched show mine.so --kind all_gather --size 5
expect 1 'wrong all_gather, size 3.*rank 0.*chunk 1' "$tutti" sched check wrong.so
expect 1 'REFUSED: .*wrong all_gather' "$tutti" sched show wrong.so --size 4
expect 1 'hangs all_reduce, size 2: rank 0, round 0, step 0: deadlock .*waits for step' "$tutti" sched check ./hangs.so
expect 1 'crashes all_gather, size 1, root 0, radix 0: (crashes: signal|ends the process)' "$tutti" sched check ./crashes.so
expect 1 'REFUSED: crashes: ' "$tutti" sched show ./crashes.so --size 1
sed 's/"mine"/"endless"/; s/return s->size - 1;/while (s->size == 3) continue; &/' mine.c >endless.c
plugin endless endless.c
expect 1 'endless all_gather, size 3, .*: does not come to an end' "$tutti" sched check ./endless.so
# A fault of one root, or one radix, or one form of groups, of one middling size.
for fault in 's->size == 13 && s->root == 5' 's->size == 20 && s->radix == 11' 's->size == 31 && s->n_levels == 2'; do
    cat >rare.c <<END
#include <tutti/schedule.h>
static uint32_t rounds(const struct tutti_shape *s) { return s->size > 1; }
static void round_steps(const struct tutti_shape *s, uint32_t k, struct tutti_emit *e)
{
    const uint32_t root = s->root + (($fault) ? s->size - k - 1 : 0);
    for (uint32_t i = 0; i < s->size; i++) {
        if (i == root % s->size) continue;
        if (s->slot == root % s->size) tutti_emit_send(e, i, TUTTI_DATA, 0, 1);
        if (s->slot == i) tutti_emit_recv(e, root % s->size, TUTTI_DATA, 0, 1);
    }
}
static const struct tutti_schedule_ops ops = {.default_radix = 2, .rounds = rounds, .round = round_steps};
const struct tutti_algorithm tutti_algorithm = {.name = "rare", .kinds = {[TUTTI_BROADCAST] = &ops}};
END
    plugin rare rare.c
    expect 1 "rare broadcast, size (13, root 5|20, .* radix 11|31, .* levels )" "$tutti" sched check ./rare.so
done
expect 1 "does not export 'tutti_algorithm'" "$tutti" sched check other.so
expect 1 'none.so can not be read' "$tutti" sched check ./none.so

[ "$failed" -eq 0 ] && echo "tutti sched does what it says"
exit "$failed"
