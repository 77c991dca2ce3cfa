#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# usage: files.sh TUTTI SOURCE CC. Algorithms from files in C and Python, right and subtly wrong, through the command and
# on ranks: what runs gives right results, and what is wrong is never run, with a sentence on every rank.
set -u
tutti=$1 source=$2 cc=$3
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
. "$source/tests/sched/expect.sh"
export XDG_CACHE_HOME=$work/cache TUTTI_CC=$cc TUTTI_INTERFACE=lo TUTTI_TRUST_NETWORK=1
unset TUTTI_ALGORITHMS TUTTI_PROVER
example=$source/examples/algorithms

# on_hosts N COMMAND...: N ranks, each on a host of its own, by TCP; in a folder of its own if there is one.
on_hosts() {
    local n=$1
    shift
    "$tutti" run -n "$n" sh -c 'cd "$0/rank$RANK" 2>/dev/null; TUTTI_HOST=host$RANK exec "$@"' "$work" "$@"
}
bench() { "$tutti" bench all_reduce -n 3 -b 1K -e 64K -f 64 --rounds 1 --calls 2 --check "$@"; }

# ---- a template is right as it is ----
expect 0 'wrote mine.c' "$tutti" sched new mine
expect 0 'wrote mine_too.py' "$tutti" sched new mine_too --python
expect 1 'cannot write mine.c: File exists' "$tutti" sched new mine
expect 2 "name '3x' must be" "$tutti" sched new 3x
expect 0 '^1 of 1 proved' "$tutti" sched check ./mine.c --sizes 1-16
expect 0 '^1 of 1 proved' "$tutti" sched check ./mine_too.py --sizes 1-5
expect 0 'round 5 ' "$tutti" sched show mine_too.py --size 4
expect 0 '.' "$tutti" sched sim ./mine.c --size 8 --bytes 1M
expect 0 'mine_too +blocks go round a ring' env TUTTI_ALGORITHMS=./mine.c,./mine_too.py "$tutti" sched list
expect 0 'algorithms +mine_too \(mine_too.py\), mine \(mine.c\)' env TUTTI_ALGORITHMS=mine.c:mine_too.py "$tutti" info

# ---- the examples, and those of the page ----
fenced() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$source/docs/write_a_collective.md" | sed '1d;$d'; }
fenced c >page.c
fenced python >page.py
for file in page.c page.py "$example"/*.c "$example"/*.py; do
    expect 0 '^1 of 1 proved' "$tutti" sched check "$(realpath "$file")" --sizes 1-5
done
sed 's/(me + p - o)/(me + p + o)/' page.c >page_wrong.c
expect 1 'my_pat all_gather, size 5, .*: rank 0, round 2, step 6 reads chunk 2 of DATA, which holds nothing' "$tutti" sched check ./page_wrong.c

# A module of the same name beside a file, or where the command is run, is not taken for tutti's.
mkdir beside
cp mine_too.py beside/
echo 'raise SystemExit("wrong module")' | tee tutti.py >beside/tutti.py
expect 0 '^1 of 1 proved' "$tutti" sched check beside/mine_too.py --sizes 6
rm tutti.py

# ---- run: by path, by option, by the option algorithm, over TCP ----
expect 0 'wrong values: 0$' bench --algorithm ./mine.c
expect 0 'wrong values: 0$' bench --algorithm ./mine_too.py
export TUTTI_LOG=trace
expect 0 'all_reduce #[0-9]+ on .*: mine, ' env TUTTI_ALGORITHMS=./mine.c "$tutti" bench all_reduce -b 1K -e 1K
expect 0 'all_reduce #[0-9]+ on .*: mine_too, ' env TUTTI_ALGORITHM=all_reduce=./mine_too.py "$tutti" bench all_reduce -b 1K -e 1K
expect 0 'all_reduce #[0-9]+ on .*: mine, ' env TUTTI_ALGORITHMS=./mine.c,mine_too.py TUTTI_ALGORITHM=all_reduce=mine \
    "$tutti" bench all_reduce -b 1K -e 1K
unset TUTTI_LOG
expect 0 'wrong values: 0$' on_hosts 3 "$tutti" bench all_reduce -b 64K -e 64K --rounds 1 --calls 2 --check --algorithm "$work/mine_too.py"

# ---- plans of others: 3 ranks of MSCCL, 2 of MSCCL++; what was exported ----
plans=$source/tests/fuzz/corpus
expect 0 'wrong values: 0$' bench --algorithm "$plans/msccl/pairs.xml"
expect 0 'wrong values: 0$' on_hosts 3 "$tutti" bench all_to_all -b 12K -e 12K --rounds 1 --calls 2 --check --algorithm "$plans/msccl/exchange.xml"
expect 0 'wrong values: 0$' "$tutti" bench all_gather -n 2 -b 1K -e 64K -f 64 --rounds 1 --calls 2 --check --algorithm "$plans/mscclpp/puts.json"
expect 0 '' "$tutti" sched export ./mine.c --world 3 --output mine.xml
expect 0 'wrong values: 0$' bench --algorithm ./mine.xml
expect 0 'own +a plan of MSCCL' env TUTTI_ALGORITHMS="$plans/msccl/pairs.xml" "$tutti" sched list
expect 1 'left out: .*pairs.xml is a plan for 3 ranks' "$tutti" bench all_reduce -n 2 -b 1K -e 1K --algorithm "$plans/msccl/pairs.xml"

# ---- other contents on a rank ----
mkdir rank0 rank1
cp mine.c rank0/own.c
sed 's/TUTTI_LEFT/TUTTI_RIGHT/' mine.c >rank1/own.c
expect 1 'rank [01] has another algorithm "./own.c"' on_hosts 2 "$tutti" bench all_reduce --algorithm ./own.c
expect 1 'rank [01] has algorithms=mine#[0-9a-f]*, this rank algorithms=mine#' env TUTTI_ALGORITHMS=./own.c "$tutti" run -n 2 sh -c \
    'cd rank$RANK; exec "$0" bench all_reduce' "$tutti"
printf '#include <tutti/schedule.h>\n#include "part.h"\nTUTTI_COLLECTIVE(TUTTI_BARRIER, "b", 0, 1, 0, N) { (void)shape; (void)round; (void)emit; }\n' |
    tee rank0/part.c >rank1/part.c
echo '#define N 0' >rank0/part.h
echo '#define N 1' >rank1/part.h
expect 1 'configurations differ' env TUTTI_ALGORITHMS=./part.c "$tutti" run -n 2 sh -c 'cd rank$RANK; exec "$0" bench barrier' "$tutti"

# ---- subtly wrong: refused on all ranks, and nothing is run ----
sed 's/p - round - 2) % p/p - round - 1) % p/' mine.c >off.c
sed 's/(me - k - 2) % p/(me - k - 1) % p/' mine_too.py >off.py
sed 's/"commutative"/""/' mine_too.py >order.py
for file in off.c off.py order.py; do
    expect 1 'on rank [0-2]: algorithm mine(_too)? is refused: mine(_too)? all_reduce, size [23]: rank [0-2]' bench --algorithm ./$file
    expect 1 'REFUSED' "$tutti" sched check ./$file --sizes 3
done

# ---- what can not be loaded ----
sed 's/uint32_t p = /uint32_t q = /' mine.c >typo.c
echo 'def f(:' >typo.py
echo 'x = 1' >none.py
printf 'import tutti\n@tutti.algorithm("all_reduces")\ndef f(rank): pass\n' >kind.py
printf 'int x;\n' >none.c
echo hello >rubbish.so
mkfifo pipe.py
expect 1 "typo.c does not compile: \./typo.c:[0-9]+:[0-9]+: error: .*'?p'? undeclared" "$tutti" sched check ./typo.c
expect 1 'typo.c does not compile' bench --algorithm ./typo.c
expect 1 'typo.c does not compile' env TUTTI_ALGORITHMS=./typo.c "$tutti" bench all_reduce
expect 1 'typo.py:1: SyntaxError' "$tutti" sched check ./typo.py
expect 1 'none.py: ValueError: no function has @tutti.algorithm' "$tutti" sched check ./none.py
expect 1 "kind.py:2: ValueError: there is no kind 'all_reduces'" "$tutti" sched check ./kind.py
expect 1 "none.c does not export 'tutti_algorithm'" "$tutti" sched check ./none.c
expect 1 'rubbish.so cannot be loaded' "$tutti" sched check ./rubbish.so
expect 1 'pipe.py is no file' "$tutti" sched check ./pipe.py
expect 1 'mine.txt is no file of an algorithm' "$tutti" sched check ./mine.txt
expect 1 'none2.c can not be read: No such file' bench --algorithm ./none2.c
cp mine.c fresh.c && echo >>fresh.c
expect 1 'there is no compiler "no-such-cc"' env TUTTI_CC=no-such-cc "$tutti" sched check ./fresh.c
echo >>mine_too.py
expect 1 'there is no "no-such-python"' env TUTTI_PYTHON=no-such-python "$tutti" sched check ./mine_too.py

# ---- strangers: a crash, an end of the process, no end, rubbish, too much ----
body() { printf '#include <stdlib.h>\n#include <tutti/schedule.h>\nTUTTI_COLLECTIVE(TUTTI_BROADCAST, "odd", 0, 1, 0, 1)\n{\n    (void)round; (void)emit; %s\n}\n' "$1"; }
python() { printf 'import os, tutti\n@tutti.algorithm("all_reduce")\ndef odd(rank):\n    %s\n' "$1"; }
body 'if (shape->size == 3) abort();' >abort.c
body 'if (shape->size == 3) exit(0);' >leave.c
python 'os.abort()' >abort.py
python 'os._exit(0)' >leave.py
python 'rank.send(rank.size, 0)' >peer.py
python 'rank.send("1", 0)' >text.py
python 'rank._lines.append("send\\0 1")' >rubbish.py
python 'raise tutti.Unsupported("it is Sunday")' >sunday.py
python 'x = [0] * (1 << 40)' >memory.py
python 'while True: rank.send(1 - rank.slot, 0)' >endless.py
python 'import time; time.sleep(1000)' >sleeps.py
expect 1 'algorithm odd is refused: odd broadcast, size 3, .*crashes: signal 6' "$tutti" bench broadcast -n 3 --algorithm ./abort.c
expect 1 'algorithm odd is refused: odd broadcast, size 3, .*ends the process with status 0' "$tutti" bench broadcast -n 3 --algorithm ./leave.c
expect 1 'sched sim: the file crashes: signal 6' "$tutti" sched sim ./abort.c --world 3
expect 1 'abort.py is ended by signal 6' bench --algorithm ./abort.py
expect 1 'leave.py writes nothing' bench --algorithm ./leave.py
expect 1 'peer.py:4: ValueError: the peer is 3, which is none of 3 ranks \(rank 0\)' bench --algorithm ./peer.py
expect 1 "text.py:4: TypeError: the peer is '1', no whole number" bench --algorithm ./text.py
expect 1 'rubbish.py:[0-9]+: ' bench --algorithm ./rubbish.py
# Whichever limit comes first on this machine: that of steps, or that of processor time.
expect 1 'endless.py(:4: OverflowError: rank 0 emits more than| does not come to an end)' bench --algorithm ./endless.py
expect 1 'sleeps.py:4: Idle: does not come to an end: 10 s have passed' bench --algorithm ./sleeps.py
expect 1 'left out: .*can not run .*: it is Sunday' bench --algorithm ./sunday.py
expect 1 'memory.py:4: MemoryError' bench --algorithm ./memory.py

# ---- what is kept ----
expect 0 'wrong values: 0$' env TUTTI_PROVER=no-such-prover PATH=/nonexistent \
    "$tutti" bench all_reduce -n 3 -b 1K -e 1K --check --algorithm ./mine.c
expect 1 'algorithm mine is not run: .*no-such-prover can not be run' env TUTTI_PROVER=no-such-prover \
    "$tutti" bench all_reduce -n 2 -b 1K -e 1K --algorithm ./fresh.c
chmod go+w cache/tutti/algorithms
expect 1 'nobody else may write' env HOME=/nonexistent "$tutti" sched check ./mine.c
chmod go-w cache/tutti/algorithms
[ -z "$(find cache -type d ! -perm 0700)" ] || { echo 'FAILED: a folder of the cache is open to others'; failed=1; }

exit $failed
