# SPDX-License-Identifier: BSD-3-Clause
# What `./dev test --gpu` does; read by ./dev, whose functions it uses. Nothing is installed and no network is needed: a
# C and a C++ compiler, CMake and the CUDA toolkit suffice. Steps go on after one that failed, and the table at the end
# says of each how it ended. What this machine lacks or refuses is "unavailable": neither passed nor failed.

gpu_limit=420 # seconds for a program under compute-sanitizer, of which racecheck is the slowest
export CUDA_DEVICE_MAX_CONNECTIONS=32 # a queue for each stream of ranks that share a process
gpu_sanitized='memcheck:tiles memcheck:tiles_reductions memcheck:lists memcheck:direct memcheck:fold memcheck:kernels'
gpu_sanitized+=' memcheck:agreements memcheck:batches memcheck:program'
gpu_sanitized+=' racecheck:tiles racecheck:tiles_reductions racecheck:lists racecheck:program'
gpu_sanitized+=' racecheck:direct racecheck:agreements' # these share memory of blocks

gpu_verb() { # [--soak SECONDS]
  local soak=120 python= one
  if [ "${1:-}" = --soak ] && [[ ${2:-} =~ ^[0-9]+$ ]]; then soak=$((10#$2)) && shift 2; fi
  [ $# = 0 ] || { say "test --gpu: unknown argument '$1'; there is --soak SECONDS (120; 0: none)"; return 2; }
  export dropped_out=unavailable
  export TUTTI_TEST_SEED=${TUTTI_TEST_SEED:-$(date +%s)} # other data each time
  say "TUTTI_TEST_SEED=$TUTTI_TEST_SEED"
  have 'python3 -c "import torch; assert torch.cuda.is_available()"' && python=$(command -v python3)
  step "build" gpu_build "$python"
  case ${steps[0]} in FAILED*) steps_tell; return 1 ;; esac
  step "tests of the library" gpu_tests -E '^(torch\..*|cuda\.soak|.*\.nccl|cuda\.nccl_replays)$'
  step "tests by NCCL" gpu_nccl "$python"
  step "tests of PyTorch" gpu_torch "$python"
  gpu_sanitize
  for one in $gpu_sanitized; do step "compute-sanitizer, ${one%:*}: ${one#*:}" gpu_sanitized "${one%:*}" "${one#*:}"; done
  [ "$soak" = 0 ] || step "random calls for $soak s" gpu_soak "$soak"
  steps_tell
}

# ---- build: the package for PyTorch meanwhile ----
gpu_build() { # python, empty: without PyTorch
  local options=(-DTUTTI_TORCH_PYTHON= -DTUTTI_TORCH_ENVIRONMENT=) folder=$PWD/build/python package= status=0
  mkdir -p build && rm -f build/torch.failed
  if [ -n "$1" ]; then
    options=("-DTUTTI_TORCH_PYTHON=$1" "-DTUTTI_TORCH_ENVIRONMENT=PYTHONPATH=$folder${PYTHONPATH:+:$PYTHONPATH}")
    "$1" -m pip --disable-pip-version-check install --no-build-isolation --no-deps --upgrade --target "$folder" . \
      >build/torch.log 2>&1 &
    package=$!
  fi
  configure release "${options[@]}" && cmake --build build --target gpu_tests -j "$jobs" || status=1
  note "$(sed -n 's/^-- \(Kernels for CUDA devices\)/\1/p' build/configure.log)"
  [ -z "$package" ] || wait "$package" || : >build/torch.failed
  [ -n "${TUTTI_CUDA_DRIVER:-}" ] || ! grep -q '^-- Kernels for CUDA devices: none' build/configure.log || return 1
  return $status
}

# ---- tests: one at a time, since each wants the devices for itself (RESOURCE_LOCK) ----
gpu_tests() { # ctest's arguments
  run_ctest release -L gpu "$@" || return 1
  grep -qE '^ *[0-9]+/[0-9]+ Test .* Passed' build/ctest.log && return 0
  note "no test found a GPU: nothing was tested"
  return 1
}

gpu_nccl() { # python: PyTorch's NCCL lies where no loader looks
  local wheel=
  [ -z "$1" ] || wheel=$("$1" -c 'import pathlib, torch; print(pathlib.Path(torch.__path__[0]).parent)')/nvidia/nccl/lib/libnccl.so.2
  [ -n "${TUTTI_NCCL_LIBRARY:-}" ] || [ ! -e "$wheel" ] || export TUTTI_NCCL_LIBRARY=$wheel
  run_ctest release -L gpu -R '(\.nccl|^cuda\.nccl_replays)$' || return 1
  grep -qE '^ *[0-9]+/[0-9]+ Test .* Passed' build/ctest.log && return 0
  note "$(TUTTI_GPU=nccl build/test/test_cuda_failures | grep -m1 '^skipped' || :)"
  return 77
}

gpu_torch() { # python
  [ -n "$1" ] || { note "there is no PyTorch that finds a CUDA device"; return 77; }
  [ ! -e build/torch.failed ] || { tail -20 build/torch.log; note "tutti_torch can not be built: see build/torch.log"; return 1; }
  gpu_tests -R '^torch\.'
}

gpu_soak() { # seconds
  local status=0
  TUTTI_SOAK_SECONDS=$1 timeout -k 5 $(($1 + 150)) build/test/test_cuda_soak 2>&1 | tee build/soak.log || status=$?
  note "$(grep -m1 '^seed' build/soak.log || tail -1 build/soak.log)"
  return $status
}

# ---- compute-sanitizer: all at once, as they take long, on a GPU each; then one by one what came of it ----
gpu_sanitizer() ( # the toolkit has it in either folder, and seldom on the PATH
  toolkit=${CUDA_HOME:-/usr/local/cuda}
  PATH=$PATH:$toolkit/bin:$toolkit/compute-sanitizer
  command -v compute-sanitizer
)

gpu_sanitize() {
  local one tool test sanitizer running=() devices=(/dev/nvidia[0-9]*)
  if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then IFS=, read -ra devices <<<"$CUDA_VISIBLE_DEVICES"; else devices=("${!devices[@]}"); fi
  sanitizer=$(gpu_sanitizer) || return 0
  say "compute-sanitizer: $gpu_sanitized"
  for one in $gpu_sanitized; do
    tool=${one%:*} test=${one#*:}
    local options=(--tool "$tool" --error-exitcode 99)
    [ "$tool" != memcheck ] || options+=(--report-api-errors no) # some tests want them
    {
      status=0
      export CUDA_VISIBLE_DEVICES=${devices[${#running[@]} % ${#devices[@]}]} TUTTI_TEST_SLOW=1
      timeout -k 5 "$gpu_limit" "$sanitizer" "${options[@]}" "build/test/test_cuda_$test" || status=$?
      echo "ended with $status"
    } >"build/$tool-$test.log" 2>&1 &
    running+=($!)
  done
  wait "${running[@]}"
}

gpu_sanitized() { # tool, test
  local log=build/$1-$2.log status summary refusal running
  gpu_sanitizer >/dev/null || { note "there is no compute-sanitizer"; return 77; }
  status=$(sed -nE 's/^ended with ([0-9]+)$/\1/p' "$log" | tail -1)
  summary=$(sed -nE 's/^=+ ((RACECHECK|ERROR) SUMMARY: .*)/\1/p' "$log" | tail -1)
  # What it says of a program that crashed is no refusal of its own.
  refusal=$(grep -iE '^=+ .*(error|not supported|no attachable process)' "$log" |
    grep -viE "terminate successfully|returned an error|hit an error" | head -1 | sed -E 's/^=+ //' || true)
  note "${summary:-${refusal:-see $log}}"
  case $status:$summary in
    0:*'SUMMARY: 0 '*) return 0 ;;
    77:*) note "$(grep -m1 '^skipped' "$log" || echo skipped)" && return 77 ;;
    124:* | 137:*)
      running=$(sed -nE 's/^\[ RUN +\] //p' "$log" | tail -1)
      note "it did not end within $gpu_limit s: ${running:-nothing had begun}"
      [ -n "$running" ] || return 77 ;;
    0:) note "it says nothing" && return 77 ;;
    *:) [ -z "$refusal" ] || return 77 ;;
  esac
  if [ "$status" = 99 ]; then grep -E '^=' "$log" | head -40 || true; else tail -20 "$log"; fi
  return 1
}
