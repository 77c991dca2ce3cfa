#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# usage: command.sh TUTTI SYCL, on the stand-in of Level Zero. What `tutti bench`, `tutti info` and `tutti prove` say of
# Intel GPUs; SYCL: the stand-in for its library.
set -u
tutti=$1 sycl=$(dirname "$2")
failed=0

expect() { # words, command...: an extended regular expression in the command's output
    local words=$1 output
    shift
    output=$("$@" 2>&1)
    grep -qE -- "$words" <<<"$output" && return
    printf 'FAILED: %s\n  expected "%s"; it said:\n%s\n' "$*" "$words" "$output"
    failed=1
}
bench() { "$tutti" bench "$@" --device xpu -n 2 --calls 2 --rounds 2; }

expect '"device":"xpu"' bench all_reduce -b 1K -e 1K --json
expect '"out_of_place":.*"wrong":0}.*"in_place":.*"wrong":0}' bench all_reduce -b 4K -e 4K --check --json
expect 'all_to_all .* 0 +[0-9.]+ .* 0$' bench all_to_all -b 1K -e 1K --check --type int32
expect 'device 0 +stand-in of an Intel GPU.*4 Xe cores, 16.0 GiB; reaches the memory of 1$' "$tutti" info
TUTTI_STANDIN_XPU_PEERS=0 expect '"device_0":"stand-in.*reaches the memory of no other"' "$tutti" info --json
TUTTI_STANDIN_XPU_DEVICES=0 expect "Level Zero's loader finds no driver for Intel GPUs" bench all_reduce
# What is not proved of them: a line without one, a list with one.
TUTTI_STANDIN_XPU_DEVICES=0 expect 'not proved +[0-9]+ points, which `tutti prove xpu` tries .* --verbose lists them' "$tutti" info
expect '"not_proved_of_xpu":\{"driver":"the driver opens' "$tutti" info --json
TUTTI_STANDIN_XPU_FAILS=zeCommandListCreateImmediate:1:0x70000003 \
    expect '"what":"device_0".*out of device memory' "$tutti" info --json
# A board whose peers' memory is wrong is found out, and calls go through the host.
TUTTI_LOG=info TUTTI_STANDIN_XPU_WRONG=1 expect 'no xpu: rank .*data is not the same after it was read from the other GPU by a copy' \
    bench all_reduce -b 1K -e 1K
TUTTI_LOG=info TUTTI_STANDIN_XPU_WRONG=2 expect 'no xpu: rank .*data is not the same after it was read from the other GPU by a kernel' \
    bench all_reduce -b 1K -e 1K
TUTTI_STANDIN_XPU_WRONG=1 expect '"out_of_place":.*"wrong":0}' bench all_reduce -b 4K -e 4K --check --json

# What users with the devices run; its points are processes of their own, of which one may fail.
report=$(mktemp)
export LD_LIBRARY_PATH=$sycl
try() { said=$("$tutti" prove xpu --only "$1" --output "$report" 2>&1); } # several points, a comma between
finds() { # point, words: an extended regular expression behind its name
    grep -qE -- "^  $1 .* $2" <<<"$said" && return
    printf 'FAILED: tutti prove xpu, %s: expected "%s"; it said:\n%s\n' "$1" "$2" "$said"
    failed=1
}
try peers,death,resident,queue,handles,oneccl
for point in peers death resident queue handles oneccl; do finds $point 'works: '; done
TUTTI_STANDIN_XPU_WRONG=2 TUTTI_STANDIN_XPU_ROOM=2 TUTTI_STANDIN_SYCL_HOLDS=1 try peers,handles,resident,queue,oneccl
finds peers 'wrong: device 0 and device 1: what a kernel wrote to the other device is not there'
finds handles 'wrong: what a kernel read from memory of the other process'
finds resident 'wrong: of 4 groups of 512 threads on 4 units 2 ran at once'
finds queue "wrong: a copy of tutti's came before what SYCL had put ahead of it"
finds oneccl 'wrong: .*: element'
TUTTI_STANDIN_XPU_WRONG=3 try peers,engines
finds peers 'wrong: device 0 and device 1: what a copy wrote to the other device is not there'
finds engines 'wrong: wrong values: [1-9]'
TUTTI_STANDIN_XPU_WRONG=4 TUTTI_STANDIN_XPU_IPC=0 try kernels,handles
finds kernels 'wrong: sum of .* is not what CPUs compute'
finds handles 'wrong: memory is not offered: zeMemGetIpcHandle'
TUTTI_STANDIN_XPU_WRONG=4 try kinds
finds kinds 'wrong: tutti bench: .*can not reach the GPU of rank'
TUTTI_STANDIN_XPU_BARRIERS=0 TUTTI_ONECCL_LIBRARY=/none try order,oneccl
finds order 'wrong: copies did not come in their order'
finds oneccl 'not here: .*there is no oneCCL here'
LD_LIBRARY_PATH='' try queue
finds queue 'not here: no SYCL library is found'
TUTTI_STANDIN_XPU_WRONG=1 expect 'sharing .* wrong: .*' "$tutti" prove xpu --only sharing --output "$report"
grep -q 'data is not the same after it was read' "$report" || { echo "FAILED: the report is: $(cat "$report")"; failed=1; }
TUTTI_STANDIN_XPU_PEERS=0 expect 'peers .* not here: no device reaches another' "$tutti" prove xpu --only peers -o "$report"
TUTTI_STANDIN_XPU_FAILS=zeCommandListCreateImmediate:1:0x70000003 \
    expect 'memory .* wrong: .*out of device memory' "$tutti" prove xpu --only memory -o "$report"
TUTTI_STANDIN_XPU_PEERS=0 expect 'sharing .* not here: the devices do not reach' "$tutti" prove xpu --only sharing -o "$report"
expect "'memori' is no point" "$tutti" prove xpu --only memori
TUTTI_STANDIN_XPU_DEVICES=0 expect "not here: Level Zero's loader finds no driver" "$tutti" prove xpu -o "$report"
rm -f "$report"
exit $failed
