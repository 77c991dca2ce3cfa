#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# tables.sh ROOT: what differs by collective or by element type stands in src/sched/kind.c and in the table of types
# (<tutti/types.h>). Elsewhere only these have tables or switches by kind or by type: algorithms and back ends, which say
# what they can do, and the CPU's kernels.
set -eu
cd "${1:?usage: tables.sh ROOT}"
found=$(grep -rnE '(\[|case )TUTTI_(ALL_REDUCE|REDUCE_SCATTER|ALL_GATHER|ALL_TO_ALL|BROADCAST|GATHER|SCATTER|BFLOAT16|FLOAT(16|32|64)|U?INT(8|32|64))(\] *=|:)' \
    src include tools --include='*.[ch]' --exclude='*_test.c' || :)
[ -n "$found" ] || { echo "tables: found none at all"; exit 1; }
arrays=$(grep -rnE '\[TUTTI_N_KINDS\] *=|TUTTI_N_DTYPES' src include tools bindings --include='*.[ch]' --include='*.[ch]pp' \
    --exclude='*_test.c' | grep -vE '^(src/(sched|base|algo|backend|device/cpu)/|include/tutti/types\.h)' || :)
[ -z "$arrays" ] || { echo "$arrays"; echo "tables: a table of all kinds or types outside of the ones"; exit 1; }
bad=$(echo "$found" | grep -vE '^src/(sched/kind\.c|base/|algo/|backend/|device/cpu/)' || :)
[ -z "$bad" ] || { echo "$bad"; echo "tables: a table by kind or type outside of the one"; exit 1; }
echo "tables: $(echo "$found" | cut -d: -f1 | sort -u | wc -l) files have one"
