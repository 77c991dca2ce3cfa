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
# PyTorch is set up in a folder of its own, where nothing is yet.
mkdir "$work/clone" && cp "$root/dev" "$work/clone" && mkdir "$work/clone/bindings" && ln -s "$root/bindings/torch" "$work/clone/bindings"

machine() { # the changing tools that are there: NAME, or NAME=SCRIPT
    rm -rf "$work/bin" "$work/asked"
    mkdir "$work/bin"
    : >"$work/asked"
    local tool
    for tool in "$@"; do
        if [[ $tool = *=* ]]; then
            printf '#!/bin/bash\n%s\n' "${tool#*=}" >"$work/bin/${tool%%=*}" && chmod +x "$work/bin/${tool%%=*}"
        else ln -s "$(command -v "$tool")" "$work/bin/$tool"; fi
    done
}
# case, exit status, then what it says (+TEXT), asks (?TEXT) and does not ask (-TEXT); torch or setup.
expect() {
    local what=$1 want=$2 verb=$3 status=0 claim file ok
    shift 3
    if [ "$verb" = setup ]; then PATH=$work/bin:$work/rest bash "$root/dev" setup >"$work/out" 2>&1 || status=$?
    else PATH=$work/bin:$work/rest bash "$work/clone/dev" setup --torch >"$work/out" 2>&1 || status=$?; fi
    for claim in "=$status" "$@"; do
        file=$work/out ok=0
        [[ $claim = +* ]] || file=$work/asked
        case $claim in
            =*) [ "${claim#=}" = "$want" ] || ok=1 ;;
            -*) ! grep -q -- "${claim#-}" "$file" || ok=1 ;;
            *) grep -q -- "${claim#?}" "$file" || ok=1 ;;
        esac
        [ $ok = 0 ] && continue
        echo "setup: $what: not so: $claim (status $status, not $want?)"
        cat "$work/out" "$work/asked"
        n_failed=$((n_failed + 1))
    done
}
installs="apt-get=echo \"apt-get \$*\" >>$work/asked; case \"\$*\" in *install*) ln -s /bin/true $work/bin/ninja;; esac"
fails="apt-get=echo \"apt-get \$*\" >>$work/asked; echo 'Could not resolve deb.debian.org'; exit 100"
is_root='id=echo 0' is_user='id=echo 1000'

# This machine is the first: what the tests are run with must be there, or these claims mean nothing.
for tool in cmake ninja pkg-config; do command -v $tool >/dev/null || { echo "setup: $tool is not here; skipped"; exit 77; }; done
machine cmake ninja pkg-config id "$installs"
expect "all there" 0 setup -apt-get
if grep -q "missing on this machine" "$work/out"; then echo "setup: this machine lacks a package; skipped"; exit 77; fi

machine cmake pkg-config "$is_root" "$installs"
expect "ninja missing" 0 setup '+ninja-build  *runs the build' '?install -y --no-install-recommends ninja-build$'
[ "$(grep -n 'missing on' "$work/out" | cut -d: -f1)" = 1 ] || { echo "setup: does not say what before it asks"; n_failed=1; }
machine cmake pkg-config "$is_user" "$installs" "sudo=echo sudo >>$work/asked; \"\$@\""
expect "through sudo" 0 setup '?sudo' '?install .* ninja-build$'
machine cmake pkg-config "$is_root" "$fails"
expect "no network" 0 setup '+without ninja-build: make is used in its place'
machine cmake "$is_root"
expect "no apt-get" 0 setup '+no apt-get here' '+without pkg-config: '
machine cmake pkg-config "$is_user" "$installs"
expect "neither root nor sudo" 0 setup '+not root, and there is no sudo'
machine ninja pkg-config "$is_root" "$fails"
expect "no cmake to be had" 1 setup '+without cmake .* nothing can be built'

# PyTorch: its Python can be anything from missing to complete. snake: a python3 that has what setup looks for, and for
# the rest this script; pip: an environment's, which writes down what it is asked.
snake() { echo "python3=case \"\$*\" in *ensurepip*|*Python.h*) exit 0;; esac; $1"; }
environment=$(snake "mkdir -p .venv/bin; ln -s $work/bin/pip .venv/bin/python")
machine cmake ninja pkg-config "$is_root" "$fails"
expect "no Python" 1 torch '?install .*python3 .*python3-venv .*python3-dev' '+without python3: there is no PyTorch' \
    '+going on without PyTorch: '
expect "no Python, and no --torch" 0 setup
machine cmake ninja pkg-config id "$fails" "$(snake 'echo "Error: no room" >&2; exit 1')"
expect "no environment" 1 torch '+an environment for Python can not be made (Error: no room)'
machine cmake ninja pkg-config id "$fails" "$environment" \
    "pip=case \"\$*\" in *install*) echo \"\$*\" >>$work/asked; echo 'ERROR: Could not reach the index'; exit 1;; *--version) exit 0;; esac; exit 1"
expect "no index" 1 torch '+PyTorch [0-9.]* can not be installed (ERROR: Could not reach the index)' \
    '?install torch==[0-9.]*+cpu numpy' '?install torch==[0-9.]* numpy'
rm -rf "$work/clone/.venv"
machine cmake ninja pkg-config id "$fails" "$environment" \
    "pip=case \"\$*\" in *build_backend*) exit 1;; *install*.) echo '      tutti: no compiler'; exit 1;; esac"
expect "no compiler" 1 torch '+tutti_torch can not be built (tutti: no compiler)'
machine cmake ninja pkg-config id "$fails" "$environment" \
    "pip=case \"\$*\" in *build_backend*) exit 0;; *install*) echo \"\$*\" >>$work/asked;; esac"
expect "all of PyTorch there" 0 torch '-install'

[ $n_failed = 0 ] && echo "setup: every claim holds"
exit $((n_failed > 0))
