#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# setup.sh ROOT: `./dev setup` on machines that lack something. A machine is a directory of links to this machine's
# tools without some of them, with an apt-get (and sudo, id) that only writes down what it was asked.
set -euo pipefail
root=${1:?usage: setup.sh ROOT}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n_failed=0

changing="cmake ninja pkg-config apt-get sudo id python3" # the rest is the same on all machines
mkdir "$work/rest"
find /bin/ /usr/bin/ -maxdepth 1 ! -type d -exec ln -sf -t "$work/rest" {} +
(cd "$work/rest" && rm -f $changing)

machine() { # those of the changing tools that are there...
    rm -rf "$work/bin" "$work/asked"
    mkdir "$work/bin"
    : >"$work/asked"
    for tool in "$@"; do ln -s "$(command -v "$tool")" "$work/bin/$tool"; done
}
fake() { # name, script
    printf '#!/bin/bash\n%s\n' "$2" >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}
setup() { PATH=$work/bin:$work/rest bash "$root/dev" setup >"$work/out" 2>&1; }
claim() { # description, command...
    local what=$1
    shift
    if "$@"; then return 0; fi
    echo "setup: not so: $what"
    cat "$work/out" "$work/asked"
    n_failed=$((n_failed + 1))
}
says() { grep -q -- "$1" "$work/out"; }
asked() { grep -q -- "$1" "$work/asked"; }
not() { ! "$@"; }
installs="echo \"apt-get \$*\" >>$work/asked; case \"\$*\" in *install*) ln -s /bin/true $work/bin/ninja;; esac"
fails="echo \"apt-get \$*\" >>$work/asked; echo 'Could not resolve deb.debian.org'; exit 100"

# This machine is the first: what the tests are run with must be there, or these claims mean nothing.
for tool in cmake ninja pkg-config; do command -v $tool >/dev/null || { echo "setup: $tool is not here; skipped"; exit 77; }; done

machine cmake ninja pkg-config id
fake apt-get "$installs"
setup && status=0 || status=$?
if says "missing on this machine"; then echo "setup: this machine lacks a package; skipped"; exit 77; fi
claim "all there: does nothing" test $status = 0
claim "all there: apt-get is not asked" not asked apt-get

machine cmake pkg-config
fake apt-get "$installs"
fake id 'echo 0'
setup && status=0 || status=$?
claim "ninja missing: ends well" test $status = 0
claim "ninja missing: says what and why" says 'ninja-build  *runs the build'
claim "ninja missing: installs it by name" asked 'install -y --no-install-recommends ninja-build$'
claim "says what before it asks" test "$(grep -n 'missing on' "$work/out" | cut -d: -f1)" = 1

machine cmake pkg-config
fake apt-get "$installs"
fake id 'echo 1000'
fake sudo "echo sudo >>$work/asked; \"\$@\""
setup && status=0 || status=$?
claim "through sudo: ends well" test $status = 0
claim "through sudo: sudo is asked" asked sudo
claim "through sudo: installs by name" asked 'install .* ninja-build$'

machine cmake pkg-config
fake apt-get "$fails"
fake id 'echo 0'
setup && status=0 || status=$?
claim "no network: goes on" test $status = 0
claim "no network: says what drops out" says 'without ninja-build: make is used in its place'

machine cmake
fake id 'echo 0'
setup && status=0 || status=$?
claim "no apt-get: goes on" test $status = 0
claim "no apt-get: says so" says 'no apt-get here'
claim "no apt-get: says what drops out" says 'without pkg-config: '

machine cmake pkg-config
fake apt-get "$installs"
fake id 'echo 1000'
setup && status=0 || status=$?
claim "neither root nor sudo: goes on" test $status = 0
claim "neither root nor sudo: says so" says 'not root, and there is no sudo'

machine ninja pkg-config
fake apt-get "$fails"
fake id 'echo 0'
setup && status=0 || status=$?
claim "no cmake to be had: fails" test $status = 1
claim "no cmake to be had: says so" says 'without cmake .* nothing can be built'

# PyTorch: in a folder of its own, where nothing is set up yet. Its Python can be anything from missing to complete.
mkdir "$work/clone" && cp "$root/dev" "$work/clone" && mkdir "$work/clone/bindings" && ln -s "$root/bindings/torch" "$work/clone/bindings"
torch() { rm -rf "$work/clone/.venv" && again; }
again() { PATH=$work/bin:$work/rest bash "$work/clone/dev" setup --torch >"$work/out" 2>&1; }
snake() { # script: a python3 that has what setup looks for, and for the rest this script
    fake python3 "case \"\$*\" in *ensurepip*|*Python.h*) exit 0;; esac; $1"
}

machine cmake ninja pkg-config
fake apt-get "$fails"
fake id 'echo 0'
torch && status=0 || status=$?
claim "no Python: --torch fails" test $status = 1
claim "no Python: asks for it by name" asked 'install .*python3 .*python3-venv .*python3-dev'
claim "no Python: says what drops out" says 'without python3: there is no PyTorch'
claim "no Python: one sentence" says 'going on without PyTorch: '
setup && status=0 || status=$?
claim "no Python: without --torch nothing is missing" test $status = 0

machine cmake ninja pkg-config id
fake apt-get "$fails"
snake 'echo "Error: no room" >&2; exit 1'
torch && status=0 || status=$?
claim "no environment: --torch fails" test $status = 1
claim "no environment: says so, and why" says 'an environment for Python can not be made (Error: no room)'

# An environment whose pip is a script that writes down what it is asked.
machine cmake ninja pkg-config id
fake apt-get "$fails"
snake "mkdir -p .venv/bin; ln -s $work/bin/pip .venv/bin/python"
fake pip "case \"\$*\" in *install*) echo \"\$*\" >>$work/asked; echo 'ERROR: Could not reach the index'; exit 1;; *--version) exit 0;; esac; exit 1"
torch && status=0 || status=$?
claim "no network: --torch fails" test $status = 1
claim "no network: says so, and why" says 'PyTorch [0-9.]* can not be installed (ERROR: Could not reach the index)'
claim "the build for CPUs is asked for first" test "$(grep -n 'install torch==[0-9.]*+cpu numpy' "$work/asked" | cut -d: -f1)" = 1
claim "then any" test "$(grep -n 'install torch==[0-9.]* numpy' "$work/asked" | cut -d: -f1)" = 2

machine cmake ninja pkg-config id
fake apt-get "$fails"
snake "mkdir -p .venv/bin; ln -s $work/bin/pip .venv/bin/python"
fake pip "case \"\$*\" in *build_backend*) exit 1;; *install*.) echo '      tutti: no compiler'; exit 1;; esac"
torch && status=0 || status=$?
claim "no compiler: --torch fails" test $status = 1
claim "no compiler: says so, in the words of the build" says 'tutti_torch can not be built (tutti: no compiler)'

fake pip "case \"\$*\" in *build_backend*) exit 0;; *install*) echo \"\$*\" >>$work/asked;; esac"
again && status=0 || status=$?
claim "all there: ends well" test $status = 0
claim "all there: installs nothing" not asked install

[ $n_failed = 0 ] && echo "setup: every claim holds"
exit $((n_failed > 0))
