# SPDX-License-Identifier: BSD-3-Clause
# What `./dev check` adds to `./dev test`; read by ./dev, whose functions it uses. Every step is run, also after one that
# failed; the table at the end says of each how it ended. A step whose tools are missing drops out, and says so.

needs() { # commands... : the step drops out (77) unless all are there
  local tool
  for tool in "$@"; do
    have "command -v $tool" || { say "$tool is missing"; exit 77; }
  done
}

preset_step() { # preset, ctest's arguments...
  local preset=$1
  shift
  export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
  export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
  export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0
  build "$preset" || return 1
  run_ctest "$preset" -LE long "$@"
}

clang_step() { needs clang && preset_step clang "$@"; }

# What has one thread has no races: proofs, kernels and parsers are left out. ThreadSanitizer of gcc 12 dies at start
# where the kernel randomises addresses by more than 28 bits, which setarch -R turns off.
tsan_step() {
  local arguments=(-E '^((algo|device|fuzz|model|sched|verify)\.|example\.digits$)' "$@")
  if setarch -R true 2>/dev/null; then
    export -f preset_step run_ctest note build configure tree_of log_of have
    jobs=$jobs setarch -R bash -c 'set -euo pipefail; preset_step tsan "$@"' tsan "${arguments[@]}"
  else
    preset_step tsan "${arguments[@]}"
  fi
}

format_step() { needs clang-format && sources | xargs clang-format --dry-run -Werror; }

tidy_step() {
  needs clang-tidy clang
  configure clang || return 1
  local status=0 tidy=(nice clang-tidy -p build-clang --quiet --warnings-as-errors='*')
  local hint=(--extra-arg=-include "--extra-arg=$PWD/tests/house/analyzer.h")
  compiled '^(src|tools)/' | grep -v '^src/base/error.c$' | xargs -P "$jobs" -n 2 "${tidy[@]}" "${hint[@]}" 2>/dev/null || status=1
  { compiled '^(examples|tests)/' && echo src/base/error.c; } | xargs -P "$jobs" -n 2 "${tidy[@]}" 2>/dev/null || status=1
  return $status
}
compiled() { # pattern -> sources that the preset clang compiles
  sources | grep -E "$1.*\.c\$" | while read -r file; do
    ! grep -q "\"file\": \"$PWD/$file\"" build-clang/compile_commands.json || echo "$file"
  done
}

# The kernels for NVIDIA GPUs, which ./dev test leaves out where there is none: compiled without warnings.
cuda_step() {
  needs nvcc
  configure cuda -DTUTTI_CUDA_ARCHITECTURES=90 && cmake --build build-cuda -j "$jobs" --target tutti_command
}

# The kernels for Arm, run by an emulator; all else is at least compiled.
arm_step() {
  needs aarch64-linux-gnu-gcc qemu-aarch64
  build aarch64 && run_ctest aarch64 -LE long -R '^(device|sched)\.'
}

# ---- the PyTorch backend: another compiler, a sanitizer, other versions' headers ----
shim() { # variant, CMake's options... : a package for PYTHONPATH, whose path is the last line
  .venv/bin/python bindings/torch/build_backend.py stage "$@"
}
needs_torch() { setup_torch || exit 77; }

shim_clang_step() {
  needs clang clang++
  needs_torch
  TUTTI_BUILD_CUDA=off CC=clang CXX=clang++ shim clang -DCMAKE_COMPILE_WARNING_AS_ERROR=ON
}

# Python itself is not instrumented, so the run time comes first; and it loses sight of what Python allocates, so leaks are
# looked for elsewhere. PyTorch's own tests and the frameworks would say nothing more, and take an hour.
shim_asan_step() {
  needs_torch
  local package preload options
  package=$(shim asan -DTUTTI_SANITIZE=address -DCMAKE_BUILD_TYPE=RelWithDebInfo | tee -a /dev/stderr | tail -1) || return 1
  preload=$(cc -print-file-name=libasan.so):$(c++ -print-file-name=libstdc++.so.6)
  # A test wants to see a process end by SIGSEGV.
  options=detect_leaks=0:detect_stack_use_after_return=1:strict_string_checks=1:handle_segv=0
  build release -DTUTTI_TORCH_PYTHON="$PWD/.venv/bin/python" \
    -DTUTTI_TORCH_ENVIRONMENT="PYTHONPATH=$package;LD_PRELOAD=$preload;ASAN_OPTIONS=$options;PYTHONMALLOC=malloc"
  local status=0
  run_ctest release -LE long -R '^torch\.' -E '^torch\.(package|demo|frameworks|pytorch)' || status=1
  build release -DTUTTI_TORCH_ENVIRONMENT= >/dev/null
  return $status
}

torch_headers() { # version -> the folder torch with its headers, fetched once
  local folder=build/torch-headers/$1
  if [ ! -d "$folder/torch/include" ]; then
    mkdir -p "$folder"
    local get=(.venv/bin/python -m pip --disable-pip-version-check download -q --no-deps -d "$folder")
    "${get[@]}" "torch==$1+cpu" >/dev/null 2>&1 || "${get[@]}" "torch==$1" >&2 || return 1
    .venv/bin/python - "$folder" <<'END' || return 1
import pathlib, sys, zipfile
folder = pathlib.Path(sys.argv[1])
for wheel in folder.glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith("torch/include/")])
    wheel.unlink()
END
  fi
  echo "$folder/torch"
}

shim_headers_step() { # version, C++ standard
  needs c++
  needs_torch
  local torch python flags
  say "the headers of torch $1"
  torch=$(torch_headers "$1") || { say "no torch $1 is to be had here"; exit 77; }
  python=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("include"))')
  flags=(-std="c++$2" -fsyntax-only -Wall -Wextra -Werror -D_GNU_SOURCE -Iinclude -Ibindings/torch/csrc -isystem "$torch/include"
    -isystem "$torch/include/torch/csrc/api/include" -isystem "$python")
  printf '%s\n' bindings/torch/csrc/*/*.cpp | xargs -P "$jobs" -n 1 c++ "${flags[@]}"
}

python_step() { # what Python itself can say of the sources: nothing is compiled into the tree
  needs python3
  find bindings bench examples tests -name '*.py' -print0 | xargs -0 python3 -W error -c '
import sys
for name in sys.argv[1:]:
    with open(name, encoding="utf-8") as source:
        compile(source.read(), name, "exec", dont_inherit=True)'
}

fuzz_step() { # seconds for each target
  needs clang
  have have_fuzzer || { say "libFuzzer is missing"; exit 77; }
  build fuzz || return 1
  local target name failed=0 n=0
  for target in build-fuzz/test/fuzz_*; do
    name=${target##*/fuzz_}
    mkdir -p "build-fuzz/corpus/$name"
    say "fuzzing $name for $1 s"
    "$target" -max_total_time="$1" -timeout=10 -rss_limit_mb=2048 -max_len=8192 -print_final_stats=1 -verbosity=0 \
      -artifact_prefix="build-fuzz/$name-" "build-fuzz/corpus/$name" "tests/fuzz/corpus/$name" || failed=1
    n=$((n + 1))
  done
  [ $n -gt 0 ] && return $failed
}

long_step() { build_with_torch && run_ctest release -L long; }

check() {
  local long=0
  case ${1:-} in
    --long) long=1 ;;
    --xpu) . tests/house/xpu.sh && check_xpu; return ;;
    '') ;;
    *) say "check: unknown option '$1'; there are --long and --xpu"; return 2 ;;
  esac
  step "test (release)" test_verb
  step "debug, without cmocka and OpenSSL" preset_step bare
  step "clang" clang_step
  step "AddressSanitizer" preset_step asan
  step "UndefinedBehaviorSanitizer" preset_step ubsan
  step "ThreadSanitizer" tsan_step
  step "format" format_step
  step "clang-tidy" tidy_step
  step "Python" python_step
  step "PyTorch backend, clang" shim_clang_step
  step "PyTorch backend, AddressSanitizer" shim_asan_step
  step "CUDA kernels" cuda_step
  step "Arm kernels" arm_step
  step "fuzzing" fuzz_step 30
  if [ $long = 1 ]; then
    step "PyTorch backend, torch 2.6" shim_headers_step 2.6.0 17
    step "PyTorch backend, torch 2.8" shim_headers_step 2.8.0 17
    step "PyTorch backend, torch 2.14" shim_headers_step 2.14.1 20
    step "the full products" long_step
  fi
  say "check:"
  steps_tell
}
