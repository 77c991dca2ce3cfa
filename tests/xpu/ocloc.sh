#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# usage: ocloc.sh FOLDER MODULES [OUT]
# Intel's offline compiler (in FOLDER, where Debian's intel-opencl-icd and what it needs were unpacked) compiles every
# module of SPIR-V in the folder MODULES for three families of GPUs. Kernels may use private memory (spill) in as few
# instructions as `most` says. OUT gets a table: kernel, family, threads that go together, registers that are used,
# instructions, those of them that use private memory.
set -euo pipefail
folder=$(readlink -f "$1") modules=$(readlink -f "$2") out=${3:-/dev/null}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
libraries=$folder/usr/lib/x86_64-linux-gnu
ln -s "$libraries"/libiga64.so.1 "$work/libiga64.so" # which the disassembler asks for
export LD_LIBRARY_PATH=$work:$libraries:$libraries/intel-opencl
ocloc=$folder/usr/bin/ocloc failed=0 n=0
declare -A most=([pvc]=0 [acm-g10]=16 [tgllp]=64)
complain() { printf 'ocloc: %s\n' "$*"; failed=1; }

: >"$out"
for module in "$modules"/*.spv; do
  name=$(basename "$module" .spv)
  for family in tgllp acm-g10 pvc; do
    case $name/$family in *_64/tgllp | *_64/acm-g10) continue ;; esac # they have no double
    at=$work/$name.$family
    "$ocloc" compile -file "$module" -spirv_input -device $family -out_dir "$at" -output "$name" \
      -options -cl-fp32-correctly-rounded-divide-sqrt >"$at.log" 2>&1 || complain "$name for $family: $(grep -m1 rror "$at.log")"
    "$ocloc" disasm -file "$at"/*.bin -device $family -dump "$at.dump" >>"$at.log" 2>&1 || complain "$name for $family is not read"
    for code in "$at.dump"/*_KernelHeap.asm; do
      kernel=$(basename "$code" _KernelHeap.asm)
      private=$(grep -cE 'ExBSO|scratch' "$code" || true)
      [ "$private" -le "${most[$family]}" ] || complain "$kernel for $family uses private memory in $private instructions"
      awk -v kernel="$kernel" -v family=$family -v private="$private" '
        { for (line = $0; match(line, /[^a-z]r[0-9]+\./); line = substr(line, RSTART + RLENGTH)) used[substr(line, RSTART + 1, RLENGTH - 2)] }
        /^ *\(?[(W~a-z]/ { n++ }
        match($0, /\((8|16|32)\|/) { size = substr($0, RSTART + 1, RLENGTH - 2) + 0; if (size > wide) wide = size }
        END { for (r in used) registers++; printf "%s | %s | %d | %d | %d | %d\n", kernel, family, wide, registers, n, private }' "$code" >>"$out"
      n=$((n + 1))
    done
  done
done
[ $n -gt 0 ] || complain "there are no kernels"
echo "ocloc: $n kernels compiled"
exit $failed
