#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# usage: sanitized.sh ROOT. What `./dev test --gpu` makes of the ways in which compute-sanitizer ends, which a made-up
# one plays: what is found fails, what is refused is neither passed nor failed. And of what it is asked for.
set -u
root=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" && mkdir -p bin build/test || exit 1

cat >bin/compute-sanitizer <<'END'
#!/usr/bin/env bash
echo "========= COMPUTE-SANITIZER"
case "$2 ${*: -1}" in
  memcheck*clean) echo "========= ERROR SUMMARY: 0 errors" ;;
  memcheck*found) echo "========= Invalid write"; echo "========= ERROR SUMMARY: 2 errors"; exit 99 ;;
  memcheck*failing) echo "[  FAILED  ] a test of its own"; echo "========= ERROR SUMMARY: 0 errors"; exit 1 ;;
  memcheck*refused) echo "========= Error: application terminated before first instrumented call"; exit 255 ;;
  memcheck*skipped) echo "skipped: no CUDA device"; exit 77 ;;
  memcheck*silent) exit 0 ;;
  memcheck*crashing) exit 139 ;;
  memcheck*dying) echo "========= Error: process didn't terminate successfully"; exit 255 ;;
  memcheck*hanging) echo "[ RUN      ] it_all"; sleep 60 ;;
  memcheck*stuck) sleep 60 ;;
  racecheck*clean) echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)" ;;
  racecheck*found) echo "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"; exit 99 ;;
esac
END
chmod +x bin/compute-sanitizer

say() { :; }
note() { told=$*; }
. "$root/tests/cuda/gpu.sh"
gpu_limit=2
failed=0
expect() { # status, part of the note, tool:test
  local status=0
  told=
  gpu_sanitized "${3%:*}" "${3#*:}" >/dev/null || status=$?
  [[ $status = "$1" && $told = *"$2"* ]] && return
  echo "FAILED: $3 ended with $status and \"$told\" instead of $1 and \"$2\""
  failed=1
}

real=$PATH
PATH=$folder/bin:$real
gpu_sanitized='memcheck:clean memcheck:found memcheck:failing memcheck:refused memcheck:skipped memcheck:silent'
gpu_sanitized+=' memcheck:crashing memcheck:dying memcheck:hanging memcheck:stuck racecheck:clean racecheck:found'
gpu_sanitize
expect 0 "0 errors" memcheck:clean
expect 1 "2 errors" memcheck:found
expect 1 "0 errors" memcheck:failing
expect 77 "before first instrumented" memcheck:refused
expect 77 "no CUDA device" memcheck:skipped
expect 77 "says nothing" memcheck:silent
expect 1 "build/memcheck-crashing.log" memcheck:crashing
expect 1 "build/memcheck-dying.log" memcheck:dying
expect 1 "did not end within 2 s: it_all" memcheck:hanging
expect 77 "nothing had begun" memcheck:stuck
expect 0 "0 hazards" racecheck:clean
expect 1 "1 hazard" racecheck:found
PATH=$real
CUDA_HOME=$folder/none
command -v compute-sanitizer >/dev/null || expect 77 "there is no compute-sanitizer" memcheck:clean

# Random calls for as long as was asked for, in decimal.
have() { false; }
step() { [ "${2:-}" != gpu_soak ] || soaked=$3; }
steps_tell() { :; }
gpu_sanitize() { :; }
steps=(passed) soaked=
gpu_verb --soak 08
[ "$soaked" = 8 ] || { echo "FAILED: --soak 08 is $soaked seconds"; failed=1; }
exit $failed
