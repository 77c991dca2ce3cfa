# SPDX-License-Identifier: BSD-3-Clause
"""Makes wheels: `wheel.py FOLDER` that of tutti (library, headers, command, Python module; any Python from 3.9 on), and
`wheel.py FOLDER torch` that of tutti-torch for the torch of this Python, which needs the first.

Where the package ziglang is installed beside this Python, its C compiler builds against glibc 2.28, so that the wheel
runs wherever pip knows manylinux_2_28; else the compiler that is here does, and the wheel's name says which glibc it
needs. OpenSSL comes in as a static library; other libraries that are needed are packed beside libtutti."""

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "torch"))
# pylint: disable=wrong-import-position
import build_backend as backend
from build_facts import BuildError, find_cmake, find_ninja, find_tool

ROOT = backend.ROOT
PACKAGE = ROOT / "bindings" / "python" / "tutti"
TREE = ROOT / "build-wheel"
GLIBC = (2, 28)
MACHINE = platform.machine()
LIBRARIES = Path(f"/usr/lib/{MACHINE}-linux-gnu")
# Libraries that manylinux has everywhere, or that are of the wheel.
EVERYWHERE = re.compile(r"^(lib(c|m|dl|rt|pthread)\.so\.\d|ld-linux.*|libtutti\.so\.\d+)$")
DEBIAN = {"libnghttp2": "libnghttp2-14", "libprotobuf-c": "libprotobuf-c1", "libssl": "libssl3"}


# ---- what it is built with ----
def script(path: Path, *words: str) -> str:
    """A program of one line, for CMake."""
    path.write_text("#!/bin/sh\nexec " + " ".join(words) + ' "$@"\n')
    path.chmod(0o755)
    return str(path)


def header_folder(folder: Path) -> Path:
    """Headers of the libraries without those of the C library beside them: zig has its own."""
    for base in (Path("/usr/include"), Path(f"/usr/include/{MACHINE}-linux-gnu")):
        for name in ("openssl/*", "nghttp2/*", "protobuf-c/*", "rdma/*", "intel-ipsec-mb"):
            for header in base.glob(f"{name}.h"):
                link = folder / header.relative_to(base)
                link.parent.mkdir(parents=True, exist_ok=True)
                if not link.exists():
                    link.symlink_to(header)
    return folder


def packages(tools: Path, flags: str, by_file: bool) -> dict:
    """The variable with which pkg-config finds two libraries and no other: these need nothing but the C library, and
    can be packed as they are. hwloc and libmicrohttpd bring whole chains, and tutti does without them."""
    tools.mkdir(parents=True, exist_ok=True)
    for name in ("libnghttp2", "libprotobuf-c"):
        file = LIBRARIES / f"{name}.so"
        if file.exists():
            (tools / f"{name}.pc").write_text(f"Name: {name}\nDescription: {name}\nVersion: 1\n"
                                              f"Cflags: {flags}\nLibs: {file if by_file else '-l' + name[3:]}\n")
    return {"PKG_CONFIG_LIBDIR": str(tools)}


def with_zig(tools: Path) -> tuple:
    """Settings of CMake and variables for zig's compiler and old glibc; libraries are named by their files."""
    zig = Path(importlib.util.find_spec("ziglang").submodule_search_locations[0]) / "zig"
    headers = header_folder(tools / "include")
    target = f"{MACHINE}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    settings = {
        "CMAKE_C_FLAGS": "-Wno-enum-float-conversion",
        "CMAKE_C_COMPILER": script(tools / "cc", str(zig), "cc", "-target", target),
        "CMAKE_AR": script(tools / "ar", str(zig), "ar"),
        "CMAKE_RANLIB": script(tools / "ranlib", str(zig), "ranlib"),
        "TUTTI_FABRIC_INCLUDE": headers if (headers / "rdma").exists() else "",
        "TUTTI_IPSEC_MB_INCLUDE": headers if (headers / "intel-ipsec-mb.h").exists() else "",
    }
    if (LIBRARIES / "libcrypto.a").exists():
        settings.update({"OPENSSL_INCLUDE_DIR": headers, "OPENSSL_CRYPTO_LIBRARY": LIBRARIES / "libcrypto.a",
                         "OPENSSL_SSL_LIBRARY": LIBRARIES / "libssl.a"})
    return settings, packages(tools, f"-I{headers}", True)


def with_system(tools: Path) -> tuple:
    """The same for the compiler that is here."""
    return {"OPENSSL_USE_STATIC_LIBS": "ON"}, packages(tools, "", False)


def compile_tree() -> Path:
    """libtutti, libnccl, the command and the module, each of which looks for the others beside it."""
    cmake, environment = find_cmake()
    ninja = find_ninja(environment)
    has_zig = importlib.util.find_spec("ziglang") is not None
    tree = TREE / ("zig" if has_zig else "cc")
    settings, variables = (with_zig if has_zig else with_system)(tree / "tools")
    settings.update({
        "CMAKE_C_FLAGS": f"{settings.get('CMAKE_C_FLAGS', '')} -ffile-prefix-map={ROOT}/=",
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
        "CMAKE_INSTALL_RPATH": "$ORIGIN;$ORIGIN/../lib",
        "CMAKE_SHARED_LINKER_FLAGS": "-Wl,-s",
        "CMAKE_MODULE_LINKER_FLAGS": "-Wl,-s",
        "CMAKE_EXE_LINKER_FLAGS": "-Wl,-s",
        "TUTTI_BUILD_TESTS": "OFF",
        "TUTTI_BUILD_EXAMPLES": "OFF",
        "TUTTI_PYTHON_INCLUDE": sysconfig.get_path("include"),
        "TUTTI_CUDA": os.environ.get("TUTTI_BUILD_CUDA", "auto"),
    })
    environment = {**environment, **variables}
    generator = ["-G", "Ninja" if ninja else "Unix Makefiles"]
    definitions = [f"-D{name}={value}" for name, value in settings.items()]
    backend.run([cmake, *generator, "-S", str(ROOT), "-B", str(tree), *definitions], environment, "configuring")
    targets = ["tutti_python", "tutti_command", "tutti_nccl"]
    backend.run([cmake, "--build", str(tree), "--target", *targets, "--parallel", str(backend.jobs())], environment,
                "compiling")
    return tree


# ---- what is in it ----
def needed(file: Path) -> list:
    """Sonames that a program needs, but for those that are everywhere."""
    text = subprocess.run([find_tool(["readelf"], "binutils", "readelf"), "-d", str(file)], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    return [name for name in re.findall(r"\(NEEDED\).*\[(.*)\]", text) if not EVERYWHERE.match(name)]


def glibc_of(file: Path) -> tuple:
    """The newest version of glibc of which it uses a name."""
    text = subprocess.run(["readelf", "-V", "-W", str(file)], check=True, stdout=subprocess.PIPE, text=True).stdout
    return max(((int(a), int(b)) for a, b in re.findall(r"GLIBC_(\d+)\.(\d+)", text)), default=(2, 17))


def found_library(name: str) -> Path:
    for folder in (LIBRARIES, Path("/usr/lib64"), Path("/usr/lib")):
        if (folder / name).exists():
            return (folder / name).resolve()
    raise BuildError(f"{name} is needed, and is in none of the system's folders")


def with_libraries(programs: dict) -> dict:
    """And the libraries of others that they need, in tutti/lib."""
    files, wanted = dict(programs), [name for file in programs.values() for name in needed(file)]
    while wanted:
        name = wanted.pop()
        if f"tutti/lib/{name}" not in files:
            files[f"tutti/lib/{name}"] = found_library(name)
            wanted += needed(files[f"tutti/lib/{name}"])
    return files


def programs_of(tree: Path) -> dict:
    """What was compiled, by its place in the wheel."""
    major = backend.version().split(".")[0]
    return with_libraries({
        "tutti/_tutti.abi3.so": tree / "python" / "tutti" / "_tutti.abi3.so",
        f"tutti/lib/libtutti.so.{major}": tree / "lib" / f"libtutti.so.{major}",
        "tutti/lib/tutti/nccl/libnccl.so.2": tree / "lib" / "tutti" / "nccl" / "libnccl.so.2",
        "tutti/bin/tutti": tree / "bin" / "tutti",
    })


def plain_files() -> dict:
    """Python, stubs and headers."""
    files = {f"tutti/{file.name}": file for end in backend.PYTHON for file in PACKAGE.glob(f"*{end}")}
    return {**files, **{f"tutti/include/tutti/{file.name}": file for end in ("*.h", "*.cuh")
                        for file in (ROOT / "include" / "tutti").glob(end)}}


def licences(programs: dict) -> dict:
    """Ours, and those of what is packed beside it or linked into it, as Debian's packages tell them."""
    texts = {"LICENSE": (ROOT / "LICENSE").read_bytes()}
    for library, package in DEBIAN.items():
        text = Path(f"/usr/share/doc/{package}/copyright")
        if text.exists() and (library == "libssl" or any(library in name for name in programs)):
            texts[f"licenses/{library}"] = text.read_bytes()
    return texts


def dist_info(programs: dict, tag: str) -> dict:
    metadata = ["Metadata-Version: 2.1", "Name: tutti", f"Version: {backend.version()}",
                "Summary: Collective communications: library, command and Python module", "License: BSD-3-Clause",
                "Requires-Python: >=3.9", "Description-Content-Type: text/markdown", "",
                (ROOT / "docs" / "python.md").read_text()]
    files = {"METADATA": "\n".join(metadata).encode(),
             "WHEEL": f"Wheel-Version: 1.0\nGenerator: tutti\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
             "entry_points.txt": b"[console_scripts]\ntutti = tutti.command:main\n", **licences(programs)}
    return {f"tutti-{backend.version()}.dist-info/{name}": content for name, content in files.items()}


def write(path: Path, files: dict) -> None:
    """A wheel of these files; the list of them, which is one, comes last."""
    info = next(name for name in files if name.endswith("/WHEEL")).rpartition("/")[0]
    rows = [f"{name},{backend.digest(content)},{len(content)}" for name, content in files.items()]
    files = {**files, f"{info}/RECORD": "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, backend.ZIP_DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if content[:4] == b"\x7fELF" else 0o100644) << 16
            wheel.writestr(entry, content)


def make_tutti(folder: Path) -> Path:
    programs = programs_of(compile_tree())
    glibc = max(GLIBC, *(glibc_of(file) for file in programs.values()))
    tag = f"cp39-abi3-manylinux_{glibc[0]}_{glibc[1]}_{MACHINE}"
    files = {name: Path(file).read_bytes() for name, file in {**plain_files(), **programs}.items()}
    path = folder / f"tutti-{backend.version()}-{tag}.whl"
    write(path, {**files, **dist_info(programs, tag)})
    return path


# ---- tutti-torch ----
def make_torch(folder: Path) -> Path:
    """The PyTorch backend alone: library, command and module are those of the wheel tutti of the same version."""
    facts = backend.gather()
    files = backend.with_stubs({**backend.python_files(), **backend.build(facts), **backend.dist_info(facts)})
    own = re.compile(rf"^(tutti\.py|{backend.NAME}/lib/libtutti\.so\..*|{re.escape(backend.SCRIPTS)}/.*)$")
    files = {name: content for name, content in files.items() if not own.match(name)}
    metadata = next(name for name in files if name.endswith("/METADATA"))
    requires = f"\nRequires-Dist: tutti (=={backend.version()})\n\n"
    files[metadata] = files[metadata].replace(b"\n\n", requires.encode(), 1)
    path = folder / f"{backend.NAME}-{backend.version()}-{facts.python_tag}.whl"
    write(path, files)
    return path


def main(folder: str, what: str = "tutti") -> None:
    with backend.sentence():
        made = {"tutti": make_tutti, "torch": make_torch}[what](Path(folder))
        print(made)
        auditwheel = importlib.util.find_spec("auditwheel")
        if auditwheel and what == "tutti" and shutil.which("patchelf"):
            backend.run([sys.executable, "-m", "auditwheel", "show", str(made)], dict(os.environ), "auditwheel")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[-1] not in ("tutti", "torch", sys.argv[1]):
        sys.exit("usage: wheel.py FOLDER [torch]")
    main(*sys.argv[1:])
