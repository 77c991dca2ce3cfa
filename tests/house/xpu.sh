# SPDX-License-Identifier: BSD-3-Clause
# `./dev check --xpu`: what can be proved of Intel's libraries without a GPU; read by ./dev, whose functions it uses. It
# gets what it needs from PyPI and Debian, by name, into build/xpu, 1.3 GB; nothing is installed on the machine.
oneccl_version=2022.2.0
opencl_packages="intel-opencl-rt==2026.2.0 intel-cmplr-lib-rt==2026.2.0 tbb==2023.2.0"
sycl_packages="dpctl dpnp intel-opencl-rt"

xpu_pip() { build/xpu/python/bin/python -m pip --disable-pip-version-check --retries 1 "$@" >>build/xpu/pip.log 2>&1; }

# The C interface, the part of it for CPUs, and the C++ library below, in the one folder where they find one another.
oneccl_get() {
  local to=build/xpu/oneccl wheels=build/xpu/wheels
  [ ! -f $to/ccl/cpu/lib/libccl.so.1 ] || return 0
  mkdir -p $wheels
  [ -x build/xpu/python/bin/python ] || python3 -m venv build/xpu/python >>build/xpu/pip.log 2>&1 || return 1
  xpu_pip download --no-deps -d $wheels "oneccl==$oneccl_version" "oneccl-cpu==$oneccl_version" || return 1
  python3 - $wheels $to <<'END'
import pathlib, sys, zipfile
wheels, to = map(pathlib.Path, sys.argv[1:])
wanted = {"oneccl-": {"libccl.so.2": "", "libccl_legacy_cpu.so": ""}, "oneccl_cpu-": {"libccl.so.1": "ccl/cpu/lib"}}
for wheel in wheels.glob("*.whl"):
    names = next(names for start, names in wanted.items() if wheel.name.startswith(start))
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.namelist():
            name = entry.rpartition("/")[2]
            if "/data/lib/" in entry and name in names:
                folder = to / names[name]
                folder.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(archive.read(entry))
    wheel.unlink()
END
}

oneccl_step() {
  needs python3
  ldconfig -p | grep -q 'libfabric\.so\.1 ' || { say "libfabric.so.1 is missing"; exit 77; }
  oneccl_get || { say "oneCCL $oneccl_version is not to be had here; see build/xpu/pip.log"; exit 77; }
  build release -DTUTTI_TEST_ONECCL="$PWD/build/xpu/oneccl/libccl.so.2" && run_ctest release -R '^oneccl\.real'
}

# Intel's OpenCL for CPUs, with what it needs (its requirements leave out the second package).
opencl_get() {
  local to=$PWD/build/xpu/opencl wheels=build/xpu/wheels
  [ ! -f $to/cpu.icd ] || return 0
  mkdir -p $wheels
  [ -x build/xpu/python/bin/python ] || python3 -m venv build/xpu/python >>build/xpu/pip.log 2>&1 || return 1
  xpu_pip download --no-deps -d $wheels $opencl_packages || return 1
  python3 - $wheels "$to/lib" <<'END'
import pathlib, sys, zipfile
wheels, to = map(pathlib.Path, sys.argv[1:])
to.mkdir(parents=True, exist_ok=True)
for wheel in [*wheels.glob("intel_opencl*.whl"), *wheels.glob("intel_cmplr*.whl"), *wheels.glob("tbb*.whl")]:
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.namelist():
            if "/data/lib/" in entry and not entry.endswith("/"):
                (to / entry.rpartition("/")[2]).write_bytes(archive.read(entry))
    wheel.unlink()
END
  echo "$to/lib/libintelocl.so" >"$to/cpu.icd"
}

opencl_step() {
  needs python3 clang-15 llvm-spirv-15
  opencl_get || { say "Intel's OpenCL for CPUs is not to be had here; see build/xpu/pip.log"; exit 77; }
  build release -DTUTTI_TEST_OPENCL="$PWD/build/xpu/opencl" && run_ctest release -R '^xpu\.spirv'
}

# Level Zero's loader, header and validation layer, Intel's driver and compiler: Debian 12's packages, unpacked.
level_zero_get() {
  local to=$PWD/build/xpu/level_zero packages=build/xpu/packages deb
  [ ! -f $to/complete ] || return 0
  mkdir -p $packages $to
  (cd $packages && apt-get download libze1 libze-dev intel-opencl-icd libigc1 libigdfcl1 libigdgmm12 libopencl-clang14 \
    libllvmspirvlib14 libllvm14) >>build/xpu/apt.log 2>&1 || return 1
  for deb in $packages/*.deb; do dpkg -x "$deb" "$to" || return 1; done
  rm -rf $packages
  touch $to/complete
}

level_zero_step() {
  needs apt-get dpkg clang-15 llvm-spirv-15
  level_zero_get || { say "Intel's driver of Level Zero is not to be had here; see build/xpu/apt.log"; exit 77; }
  build release -DTUTTI_TEST_LEVEL_ZERO="$PWD/build/xpu/level_zero" && run_ctest release -R '^xpu\.(intel|driver)'
}

# dpctl and dpnp, with SYCL and its device of the CPU, for the Python that has PyTorch.
sycl_get() {
  local to=$PWD/build/xpu/sycl
  [ ! -f $to/complete ] || return 0
  .venv/bin/python -m venv $to >>build/xpu/pip.log 2>&1 || return 1
  $to/bin/python -m pip --disable-pip-version-check --retries 1 install $sycl_packages >>build/xpu/pip.log 2>&1 || return 1
  mkdir -p $to/icd
  echo "$to/lib/libintelocl.so" >"$to/icd/cpu.icd"
  touch $to/complete
}

sycl_step() {
  mkdir -p build/xpu
  needs_torch
  sycl_get || { say "dpctl and dpnp are not to be had here; see build/xpu/pip.log"; exit 77; }
  local to=$PWD/build/xpu/sycl
  build release -DTUTTI_TORCH_PYTHON="$PWD/.venv/bin/python" || return 1
  OCL_ICD_VENDORS=$to/icd LD_LIBRARY_PATH=$to/lib PYTHONPATH=$(echo $to/lib/python3.*/site-packages) TUTTI_TEST_SYCL=1 \
    TUTTI_BUILD=$PWD/build OMP_NUM_THREADS=1 .venv/bin/python tests/torch/usm_test.py
}

xpu_torch_step() {
  needs_torch
  [ -n "${TUTTI_XCCL_TESTS:-}" ] ||
    say "without XCCL's own tests: set TUTTI_XCCL_TESTS to a checkout of github.com/intel/torch-xpu-ops"
  build release -DTUTTI_TORCH_PYTHON="$PWD/.venv/bin/python" && run_ctest release -R '^torch\.(xpu|xpu_pytorch|xccl)\.standin$'
}

check_xpu() {
  mkdir -p build/xpu
  step "oneCCL on host memory" oneccl_step
  step "SPIR-V by Intel's OpenCL for CPUs" opencl_step
  step "Intel's driver of Level Zero, without hardware" level_zero_step
  step "arrays of dpctl and dpnp, by SYCL on the CPU" sycl_step
  step "PyTorch's and XCCL's tests on a played device \"xpu\"" xpu_torch_step
  say "check --xpu:"
  steps_tell
}
