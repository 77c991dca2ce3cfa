# SPDX-License-Identifier: BSD-3-Clause
"""Builds and packs the Python package tutti_torch: the PEP 517 and 660 backend behind `pip install .`, and a small
command for ./dev. CMake compiles libtutti and the shim in build-torch/ of the clone, one tree for each Python and
torch, so that a second build compiles only what changed; the wheel is packed here, with Python's own library alone."""

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from importlib import metadata as installed_metadata
from pathlib import Path

from build_facts import BuildError, Facts, gather

ROOT = Path(__file__).resolve().parents[2]
BINDINGS = ROOT / "bindings" / "torch"
PACKAGE = BINDINGS / "tutti_torch"
ALGORITHMS = ROOT / "bindings" / "python" / "tutti" / "tracer.py"  # algorithms in Python: pure, and of no use to torch
NAME = "tutti_torch"
PYTHON = (".py", ".pyi", ".typed")  # what of the package is not compiled; py.typed says that the types are told
# A wheel is the same bytes whenever it is made of the same files: 1980 is the first year that zip knows.
ZIP_DATE = (1980, 1, 1, 0, 0, 0)
# Memory that the compiler takes for one source with torch's headers.
BYTES_A_JOB = 1 << 30


# ---- what there is to build ----
def version() -> str:
    """tutti's version; the C project says it."""
    return re.search(r"^project\(tutti VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M).group(1)


def sources() -> list:
    """Every file that can change the package."""
    files = [ROOT / "CMakeLists.txt", ROOT / "pyproject.toml"]
    for folder in ("cmake", "include", "src", "tools/tutti", "examples/algorithms", "bindings"):
        files += (ROOT / folder).rglob("*")
    kept = (".c", ".h", ".inc", ".cuh", ".cpp", ".hpp", *PYTHON, ".txt", ".toml", ".cmake", ".map", ".in")
    return sorted(file for file in files if file.suffix in kept and file.is_file() and file != PACKAGE / "_build.py"
                  and not file.name.endswith("_test.c"))


def fingerprint() -> str:
    """A number over the sources' names and contents."""
    total = hashlib.sha256()
    for file in sources():
        total.update(f"{file.relative_to(ROOT)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def jobs() -> int:
    """As many as there are CPUs, but not more than memory is there for."""
    free = re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
    room = int(free.group(1)) * 1024 // BYTES_A_JOB if free else 1
    return max(1, min(len(os.sched_getaffinity(0)), room))


# What installers put on the PATH.
SCRIPTS = f"{NAME}-{version()}.data/scripts"


# ---- compiling ----
def run(command: list, environment: dict, what: str) -> None:
    print("+ " + " ".join(command), flush=True)
    if subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT).returncode != 0:
        raise BuildError(f"{what} failed; the lines above say why")


@contextlib.contextmanager
def build_tree(facts: Facts, variant: str):
    """The folder to build in, held against other builds. One that was moved here from elsewhere is begun anew."""
    parts = [facts.python_tag.split("-")[1], "torch" + facts.torch_version.replace("+", "_"), variant]
    tree = ROOT / "build-torch" / "-".join(filter(None, parts))
    tree.mkdir(parents=True, exist_ok=True)
    with open(tree / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cache = tree / "CMakeCache.txt"
        if cache.exists() and f"CMAKE_HOME_DIRECTORY:INTERNAL={ROOT}\n" not in cache.read_text():
            cache.unlink()
            shutil.rmtree(tree / "CMakeFiles", ignore_errors=True)
        yield tree


def torch_settings(facts: Facts) -> dict:
    """Variables of CMake: which torch and which Python the shim is for."""
    pybind = [f'PYBIND11_{name}="{value}"' for name, value in facts.pybind.items()]
    return {
        "TUTTI_TORCH_ROOT": facts.torch_root,
        "TUTTI_TORCH_VERSION": facts.torch_version.partition("+")[0],
        "TUTTI_TORCH_CXX11_ABI": int(facts.cxx11_abi),
        "TUTTI_TORCH_DEFINITIONS": ";".join(pybind),
        "TUTTI_PYTHON_INCLUDE": facts.python_include,
        "TUTTI_PYTHON_SUFFIX": facts.python_suffix,
        "TUTTI_TORCHCOMMS_LIBRARY": facts.torchcomms_library,
    }


def kernels_for_cuda() -> str:
    """The value of TUTTI_CUDA: kernels take half an hour to compile, so without a GPU none is built unasked."""
    return os.environ.get("TUTTI_BUILD_CUDA") or ("auto" if os.path.exists("/dev/nvidiactl") else "off")


def compile_library(facts: Facts, tree: Path, options: list) -> None:
    """libtutti, the shim and the command, and nothing else of the project."""
    settings = {
        "CMAKE_BUILD_TYPE": "Release",
        "TUTTI_BUILD_TESTS": "OFF",
        "TUTTI_BUILD_TOOLS": "ON",
        "TUTTI_BUILD_EXAMPLES": "OFF",
        **torch_settings(facts),
        "TUTTI_CUDA_ARCHITECTURES": "native",
        "TUTTI_CUDA": kernels_for_cuda(),
    }
    # The generator is settled when the tree is first configured.
    if not (tree / "CMakeCache.txt").exists():
        options = ["-G", "Ninja" if facts.ninja else "Unix Makefiles", *options]
        if facts.ninja:
            settings["CMAKE_MAKE_PROGRAM"] = facts.ninja
    definitions = [f"-D{name}={value}" for name, value in settings.items()]
    run([facts.cmake, "-S", str(ROOT), "-B", str(tree), *definitions, *options], facts.environment,
        "configuring the build")
    parallel = [] if "CMAKE_BUILD_PARALLEL_LEVEL" in os.environ else ["--parallel", str(jobs())]
    targets = ["tutti_torch", "tutti_command", *(["tutti_torchcomms"] if facts.torchcomms_library else [])]
    run([facts.cmake, "--build", str(tree), "--target", *targets, *parallel], facts.environment, "compiling")


def record_of_build(facts: Facts, sources_built: str) -> str:
    """tutti_torch/_build.py: what the package was built from and for."""
    return "\n".join([
        "# SPDX-License-Identifier: BSD-3-Clause",
        '"""Written by build_backend.py: what this package was built from and for."""',
        f"VERSION = {version()!r}",
        f"TORCH = {facts.torch_version!r}",
        f"TORCHCOMMS = {facts.torchcomms_version!r}",
        f"PYTHON = {'.'.join(map(str, sys.version_info[:3]))!r}",
        f"CXX11_ABI = {facts.cxx11_abi!r}",
        f"SOURCES = {sources_built!r}",
        "",
    ])


def built_files(facts: Facts, tree: Path, sources_built: str) -> dict:
    """What compiling made, by its name in the package."""
    major = version().split(".")[0]
    plugin = ["libtutti_torchcomms.so"] if facts.torchcomms_library else []
    return {
        **{f"{NAME}/lib/{name}": (tree / "torch" / name).read_bytes() for name in plugin},
        f"{NAME}/_C{facts.python_suffix}": (tree / "torch" / f"_C{facts.python_suffix}").read_bytes(),
        f"{NAME}/lib/libtutti.so.{major}": (tree / "lib" / f"libtutti.so.{major}").read_bytes(),
        f"{SCRIPTS}/tutti": (tree / "bin" / "tutti").read_bytes(),
        f"{NAME}/_build.py": record_of_build(facts, sources_built).encode(),
    }


def python_files() -> dict:
    """The package's Python, by its name in the wheel; what an editable installation built beside it stays out."""
    files = [*BINDINGS.glob("tutti_torch*.py"), *(file for end in PYTHON for file in PACKAGE.rglob(f"*{end}"))]
    found = {str(file.relative_to(BINDINGS)): file.read_bytes() for file in files if file != PACKAGE / "_build.py"}
    return {**found, "tutti.py": ALGORITHMS.read_bytes()}


def build(facts: Facts, variant: str = "", options: "list | None" = None) -> dict:
    """Compiles; returns all that belongs to the package but the Python files of the tree."""
    with build_tree(facts, variant) as tree:
        sources_built = fingerprint()  # now: what is edited meanwhile may or may not be in
        compile_library(facts, tree, options or [])
        return built_files(facts, tree, sources_built)


def with_stubs(files: dict) -> dict:
    """And the stubs of what is compiled, which is loaded for that."""
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), files)
        run([sys.executable, str(BINDINGS / "stubs.py"), folder], {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
            "writing the stubs")
        written = (file for file in Path(folder, NAME, "comms").rglob("*.pyi"))
        return {**files, **{str(file.relative_to(folder)): file.read_bytes() for file in written}}


# ---- packing ----
def table_of(text: str, name: str) -> dict:
    """The strings of one table of pyproject.toml: a few lines of our own, since Python 3.9 reads no TOML."""
    body = re.search(rf"^\[{re.escape(name)}\]\n((?:[^\[\n].*\n|\n)*)", text, re.M).group(1)
    return {key: json.loads(f'"{value}"') for key, value in re.findall(r'^"?([\w:-]+)"? = "(.*)"$', body, re.M)}


def dist_info(facts: "Facts | None") -> dict:
    """The files that describe the package; without facts, those of a source archive. torch is no requirement there: an
    installer that is told to reinstall would fetch another one, and import checks it anyway."""
    text = (ROOT / "pyproject.toml").read_text()
    project = table_of(text, "project")
    description = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {version()}",
        f"Summary: {project['description']}",
        "License: BSD-3-Clause",
        f"Requires-Python: {project['requires-python']}",
        "Description-Content-Type: text/markdown",
        "",
        (ROOT / project["readme"]).read_text(),
    ]
    files = {"METADATA": "\n".join(description)}
    if facts:
        groups = re.findall(r'^\[project\.entry-points\."([\w.]+)"\]$', text, re.M)
        points = {group: table_of(text, f'project.entry-points."{group}"') for group in groups}
        files["WHEEL"] = ("Wheel-Version: 1.0\nGenerator: tutti build_backend\nRoot-Is-Purelib: false\n"
                          f"Tag: {facts.python_tag}\n")
        files["entry_points.txt"] = "".join(
            f"[{group}]\n" + "".join(f"{name} = {what}\n" for name, what in table.items())
            for group, table in points.items())
        files["LICENSE"] = (ROOT / "LICENSE").read_text()
    return {f"{NAME}-{version()}.dist-info/{name}": content.encode() for name, content in files.items()}


def digest(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def is_program(path: str) -> bool:
    return ".so" in path or path.startswith(SCRIPTS)


def write_wheel(directory: str, facts: Facts, files: dict) -> str:
    """The wheel of these files; returns its name."""
    name = f"{NAME}-{version()}-{facts.python_tag}.whl"
    record = f"{NAME}-{version()}.dist-info/RECORD"
    files = {**files, **dist_info(facts)}
    rows = [f"{path},{digest(content)},{len(content)}" for path, content in files.items()]
    files[record] = "\n".join([*rows, f"{record},,", ""]).encode()
    with zipfile.ZipFile(Path(directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, ZIP_DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if is_program(path) else 0o100644) << 16
            wheel.writestr(entry, content)
    return name


def write_files(directory: Path, files: dict) -> None:
    """Each as a new file: a process that has mapped the old one keeps it."""
    for path, content in files.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(target.name + ".new")
        fresh.write_bytes(content)
        fresh.chmod(0o755 if is_program(path) else 0o644)
        fresh.replace(target)


# ---- what installers call ----
@contextlib.contextmanager
def sentence():
    """An error that we expect is one line, without the traceback that installers would print."""
    try:
        yield
    except BuildError as error:
        sys.exit(f"tutti: {error}")
    except OSError as error:
        sys.exit(f"tutti: {error.strerror}: {error.filename}")


def get_requires_for_build_wheel(config_settings=None) -> list:
    return []


get_requires_for_build_editable = get_requires_for_build_sdist = get_requires_for_build_wheel


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None) -> str:
    with sentence():
        write_files(Path(metadata_directory), dist_info(gather()))
    return f"{NAME}-{version()}.dist-info"


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None) -> str:
    with sentence():
        facts = gather()
        return write_wheel(wheel_directory, facts, with_stubs({**python_files(), **build(facts)}))


def build_editable(wheel_directory, config_settings=None, metadata_directory=None) -> str:
    """The package stays in the tree: what was compiled is put beside its Python, and a .pth file leads there."""
    with sentence():
        facts = gather()
        built = build(facts)
        command = {path: built.pop(path) for path in list(built) if path.startswith(SCRIPTS)}
        stubs = {name: file for name, file in with_stubs({**python_files(), **built}).items() if name.endswith(".pyi")}
        write_files(BINDINGS, {**built, **stubs})
        path = {f"__editable__.{NAME}.pth": f"{BINDINGS}\n".encode()}
        return write_wheel(wheel_directory, facts, {**path, **command})


def build_sdist(sdist_directory, config_settings=None) -> str:
    """All that git tracks, as one archive."""
    with sentence():
        listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL) if shutil.which("git") else None
        if not listed or listed.returncode != 0:
            raise BuildError("a source archive is made of what git tracks, and this tree is no clone: copy the tree")
        base = f"{NAME}-{version()}"
        about = Path(sdist_directory) / "PKG-INFO"
        about.write_bytes(next(iter(dist_info(None).values())))
        with tarfile.open(Path(sdist_directory) / f"{base}.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
            for file in filter(os.path.lexists, (ROOT / name for name in listed.stdout.decode().split("\0") if name)):
                archive.add(file, f"{base}/{file.relative_to(ROOT)}", recursive=False)
            archive.add(about, f"{base}/PKG-INFO")
        about.unlink()
        return f"{base}.tar.gz"


# ---- what ./dev calls ----
def is_current(torch: str) -> bool:
    """Whether this Python has that torch, numpy, and the package, built of these sources for that torch."""
    try:
        installed_metadata.version("numpy")
        folder = Path(installed_metadata.distribution("tutti-torch").locate_file(NAME))
        if not (folder / "_build.py").exists():
            folder = PACKAGE  # an editable installation
        record = dict(re.findall(r"^(\w+) = '(.*)'$", (folder / "_build.py").read_text(), re.M))
        if installed_metadata.version("torch").partition("+")[0] != torch:
            return False
        return record["SOURCES"] == fingerprint() and record["TORCH"] == installed_metadata.version("torch")
    except (installed_metadata.PackageNotFoundError, OSError, KeyError):
        return False


def stage(variant: str, options: list) -> Path:
    """A package that is not installed, for PYTHONPATH: built with other options, to be tested."""
    with sentence():
        facts = gather()
        files = with_stubs({**python_files(), **build(facts, variant, options)})
        tag = facts.python_tag.split("-")[1]
        directory = ROOT / "build-torch" / f"{tag}-{variant}-package"
        shutil.rmtree(directory, ignore_errors=True)
        write_files(directory, files)
        return directory


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "current":
        sys.exit(0 if is_current(sys.argv[2]) else 1)
    elif len(sys.argv) >= 3 and sys.argv[1] == "stage":
        print(stage(sys.argv[2], sys.argv[3:]))
    else:
        sys.exit("usage: build_backend.py current TORCH | stage VARIANT CMAKE-OPTIONS...")
