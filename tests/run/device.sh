#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# usage: device.sh TUTTI NCCL. What the command measures and says of CUDA devices, on those of TUTTI_CUDA_DRIVER, and
# beside that library.
set -u
tutti=$1 nccl=$2
failed=0

# expect WORDS COMMAND...: an extended regular expression in the command's output.
expect() {
    local words=$1 output
    shift
    output=$("$@" 2>&1)
    grep -qE -- "$words" <<<"$output" && return
    printf 'FAILED: %s\n  expected "%s"; it said:\n%s\n' "$*" "$words" "$output"
    failed=1
}
bench() {
    "$tutti" bench "$@" --device cuda -n 2 --calls 2 --rounds 2
}
job() {
    "$tutti" run -n 2 -- "$tutti" info --job --json
}

# Every method that can do it, and the one that is chosen; the same by the option, which forces one.
ways=$(bench all_reduce -b 1K -e 1K --explain)
for way in lines sentinel tiles; do
    grep -qE "^  [* ] cuda:$way( +[0-9.]+){3} +[1-9][0-9]*$" <<<"$ways" || { echo "FAILED: no $way in: $ways"; failed=1; }
done
[ "$(grep -c '^  \* cuda:' <<<"$ways")" = 1 ] || { echo "FAILED: not one way is chosen: $ways"; failed=1; }
TUTTI_GPU_METHOD=tiles expect '^  \* cuda:tiles ' bench all_reduce -b 1K -e 1K --explain
expect '"name":"cuda:lines","predicted_us":[0-9.]+,"measured_us":[0-9.]+,"chosen":true,"sms":[1-9]' \
    bench all_gather -b 1K -e 1K --explain --json
expect '"cells":1}$' bench all_gather -b 1K -e 1K --mode eager --explain --json
expect 'without --peer' bench all_gather --explain --peer nccl
expect 'with a --device that is not cpu' "$tutti" bench all_reduce -n 2 --mode graph
TUTTI_GPU_METHOD=line expect 'option gpu_method is "line" but can be batch, .*lines' bench all_reduce -b 1K -e 1K
TUTTI_GPU=off expect 'option gpu is off' bench all_reduce -b 1K -e 1K

# Rounds that were held up are seen in the spread; a broadcast has one place in its window, and reaches it.
expect '"time_us":[0-9.]+,"min_us":[0-9.]+,"max_us":[0-9.]+' bench all_gather -b 1K -e 1K --json
expect '"out_of_place":.*"wrong":0}.*"in_place":.*"wrong":0}' bench broadcast -b 4K -e 4K --mapped --check --json

# Groups, whose calls are fused.
expect '"group":6,' bench all_gather -b 1K -e 1K --group 6 --json
expect '"out_of_place":.*"wrong":0}.*"in_place":.*"wrong":0}' bench all_gather -b 1K -e 1K --group 6 --check --json
expect 'batch_sentinel_float32_sum' env TUTTI_STANDIN_TRACE=1 "$tutti" bench --device cuda -n 2 --calls 2 --rounds 2 \
    -b 1K -e 1K --group 6 --place in
expect 'with a --device that is not cpu' "$tutti" bench --group 6

# What is checked is what is measured: kernels that do nothing in graphs, alone and in groups, are found out.
TUTTI_STANDIN_IDLE=lines expect '"wrong":[1-9][0-9]*}' bench all_gather -b 1K -e 1K --check --place out --json
TUTTI_STANDIN_IDLE=lines expect '"wrong":0}' bench all_gather -b 1K -e 1K --check --place out --mode eager --json
TUTTI_STANDIN_IDLE=batch expect '"wrong":[1-9][0-9]*}' bench all_gather -b 1K -e 1K --group 6 --check --place out --json

# Constants of the GPUs, which are used from then on; not of ranks that share one unless it is said so.
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
XDG_CACHE_HOME=$cache expect '^# written to .*-2[.]tune, which is used from now on' "$tutti" tune --device cuda -n 2 --seconds 0
grep -qE '^tiles_ns +[0-9]' "$cache"/tutti/*-2.tune || { echo "FAILED: no tiles_ns in $(cat "$cache"/tutti/*)"; failed=1; }
sed -i 's/^lines_ns .*/lines_ns 9000000/' "$cache"/tutti/*-2.tune
XDG_CACHE_HOME=$cache expect '^  [*] cuda:sentinel ' bench all_reduce -b 1K -e 1K --explain
expect 'one GPU has no peers' env TUTTI_STANDIN_DEVICES=1 "$tutti" tune --device cuda
expect -- '--device is "cpux" but can be cpu, cuda' "$tutti" tune --device cpux

# Beside NCCL, which has no windows of tutti's and not all operations.
export TUTTI_NCCL_LIBRARY=$nccl
nccl_time='  nccl [0-9.]+/[0-9.]+'
expect "^  all_reduce .*$nccl_time$nccl_time\$" bench all_reduce -b 1K -e 1K --peer nccl
expect "^  all_reduce .*$nccl_time$nccl_time\$" bench all_reduce -b 1K -e 1K --peer nccl --mapped
expect "^  all_to_all .*$nccl_time$nccl_time\$" bench all_to_all -b 1K -e 1K --peer nccl
expect '"peer_us":[0-9.]+,"cost_us":-?[0-9.]+,"ratio":[0-9.]+}' bench all_reduce -b 1K -e 1K --peer nccl --mode eager --json
beside=$(bench all -b 1K -e 1K --peer nccl)
grep -qE "^  scan .*  nccl -  nccl -$" <<<"$beside" || { echo "FAILED: scan by nccl in: $beside"; failed=1; }
grep -qE "^  sendrecv .*$nccl_time$" <<<"$beside" || { echo "FAILED: nothing behind scan in: $beside"; failed=1; }
unset TUTTI_NCCL_LIBRARY

# What survives is not captured, and costs something beside what does not.
expect '"wrong":0,"peer_us":[0-9.]+,"cost_us":-?[0-9.]+,' bench all_reduce -b 1K -e 1K --survive --check --json
expect 'calls that survive are not captured' bench all_reduce --survive --mode graph

# Through the host nothing is captured in a graph: what users with the devices run asks for none.
TUTTI_GPU=host expect 'goes through the host, which can not be captured' bench all_reduce -b 1K -e 1K
report=$(mktemp)
expect '^  host .* works: every value is right' "$tutti" prove cuda --only host --output "$report"
rm -f "$report"

# From no bytes on.
expect '"op":"all_reduce","bytes":8,' timeout 60 "$tutti" bench all_reduce -n 2 -b 0 -e 8 --calls 2 --rounds 2 --json

# What a communicator takes of the device.
expect 'device [01], 2 ranks: cuda, 64\.0 MiB of scratch memory, [0-9]+ blocks, 0 peers by address and 1 by handle' \
    env TUTTI_LOG=info "$tutti" bench all_gather --device cuda -b 1K -e 1K --calls 1 --rounds 1
expect '"device_back_ends":"cuda' job
expect '"scratch_of_device":67108864[,}]' job
TUTTI_GPU=host expect '"device_back_ends":"none"' job
exit $failed
