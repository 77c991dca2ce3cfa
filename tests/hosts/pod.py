# SPDX-License-Identifier: BSD-3-Clause
"""One pod of a manifest, on this machine: pod.py FOLDER INDEX MANIFEST PROGRAM [ARGS...], in a network namespace. What
the manifest says of the container is what it gets: namespaces of mounts, processes, names and memory, a root that can
not be written, /dev/shm of its size, the secret as a file, the user, no capabilities, and system calls refused as
RuntimeDefault does without SYS_PTRACE. Names come of FOLDER/hosts, which may be filled later."""

import ctypes
import os
import struct
import subprocess
import sys

import yaml

LIBC = ctypes.CDLL(None, use_errno=True)
SIZES = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
# x86-64 and AArch64: ptrace, process_vm_readv, process_vm_writev, kcmp, io_uring_*, pidfd_getfd, add_key, keyctl, bpf,
# perf_event_open, userfaultfd, unshare, setns, mount, umount2, get_mempolicy, mbind, set_mempolicy, move_pages.
REFUSED = {
    "x86_64": (101, 310, 311, 312, 425, 426, 427, 438, 248, 250, 321, 298, 323, 272, 308, 165, 166, 239, 237, 238, 279),
    "aarch64": (117, 270, 271, 272, 425, 426, 427, 438, 217, 219, 280, 241, 282, 97, 268, 40, 39, 236, 235, 237, 239),
}


def call(name, *args):
    if getattr(LIBC, name)(*args) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def mount(source, target, kind, flags, data=None):
    call("mount", *(x and x.encode() for x in (source, target, kind)), ctypes.c_ulong(flags), data and data.encode())


BIND, REMOUNT, READ_ONLY, PRIVATE, RECURSIVE, NO_SUID = 4096, 32, 1, 1 << 18, 16384, 2


def filter_calls():
    """Seccomp: those of REFUSED are EPERM."""
    numbers = REFUSED[os.uname().machine]
    code = [(0x20, 0, 0, 0)]  # the call's number
    code += [(0x15, len(numbers) - i, 0, number) for i, number in enumerate(numbers)]
    code += [(0x06, 0, 0, 0x7fff0000), (0x06, 0, 0, 0x00050001)]
    program = b"".join(struct.pack("HBBI", *line) for line in code)
    memory = ctypes.create_string_buffer(program)
    head = struct.pack("HxxxxxxP", len(code), ctypes.addressof(memory))
    call("prctl", 38, 1, 0, 0, 0)  # no new privileges
    call("prctl", 22, 2, ctypes.create_string_buffer(head), 0, 0)


def variables_of(container, index, job):
    """The variables of the container."""
    variables = {"PATH": os.environ["PATH"], "HOSTNAME": f"{job}-{index}", "JOB_COMPLETION_INDEX": str(index)}
    variables.update({k: v for k, v in os.environ.items() if k.startswith("TUTTI_LOG") or k == "LD_LIBRARY_PATH"})
    variables.update({one["name"]: str(one["value"]) for one in container["env"]})
    return variables


def mounts_make(folder, spec, container):
    """In a namespace of mounts. The last step makes all that is there read-only, but what was mounted here."""
    mount("none", "/", None, RECURSIVE | PRIVATE)
    mount(os.path.join(folder, "hosts"), "/etc/hosts", None, BIND)
    volumes, own = {v["name"]: v for v in spec["volumes"]}, []
    for one in container["volumeMounts"]:
        path, volume = one["mountPath"], volumes[one["name"]]
        if not os.path.isdir(path):
            top = "/" + path.split("/")[1]
            mount("tmpfs", top, "tmpfs", NO_SUID)
            os.makedirs(path)
            own.append(top)
        if "secret" in volume:
            mount("tmpfs", path, "tmpfs", NO_SUID)
            file = os.path.join(path, "secret")
            with open(file, "w", encoding="ascii") as f:
                f.write("sesame of the pods\n")
            os.chmod(file, volume["secret"]["defaultMode"])
            os.chown(file, 0, spec["securityContext"]["fsGroup"])
            mount("none", path, None, REMOUNT | READ_ONLY)
        else:
            limit = volume["emptyDir"]["sizeLimit"]
            assert volume["emptyDir"]["medium"] == "Memory", volume
            mount("tmpfs", path, "tmpfs", NO_SUID, f"size={int(limit[:-2]) * SIZES[limit[-2:]]},mode=1777")
        own.append(path)
    mount("proc", "/proc", "proc", 0)
    if container["securityContext"]["readOnlyRootFilesystem"]:
        with open("/proc/self/mounts", encoding="utf-8") as f:
            points = [line.split()[1].encode().decode("unicode_escape") for line in f]
        for point in points:
            if point.split("/")[1] not in ("proc", "dev", "sys") and not any(point.startswith(path) for path in own):
                mount("none", point, None, REMOUNT | BIND | READ_ONLY)


def inside(folder, index, manifest, program):
    """The first process of the pod's namespaces."""
    with open(manifest, encoding="utf-8") as f:
        job = next(one for one in yaml.safe_load_all(f) if one["kind"] == "Job")
    spec, name = job["spec"]["template"]["spec"], job["metadata"]["name"]
    container, user = spec["containers"][0], spec["securityContext"]
    subprocess.run(["hostname", f"{name}-{index}"], check=True)
    mounts_make(folder, spec, container)
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"] and user["runAsNonRoot"]
    for capability in range(64):
        LIBC.prctl(24, capability, 0, 0, 0)  # out of the bounding set
    os.setgroups([user["fsGroup"]])
    os.setgid(user["runAsGroup"])
    os.setuid(user["runAsUser"])
    if not container["securityContext"]["allowPrivilegeEscalation"]:
        filter_calls()
    os.chdir("/")
    command = container["command"] + (program or container["args"])
    os.execvpe(command[0], command, variables_of(container, index, name))


def main():
    folder, index, manifest, *program = sys.argv[1:]
    if index.startswith("+"):
        inside(folder, int(index), manifest, program)
    own = ["unshare", "--mount", "--pid", "--fork", "--ipc", "--uts", "--kill-child"]
    done = subprocess.run([*own, sys.executable, __file__, folder, f"+{index}", manifest, *program], check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
