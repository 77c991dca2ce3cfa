# SPDX-License-Identifier: BSD-3-Clause
"""The example of Kubernetes: its manifest says what it should, and its container's command runs in pods that are
namespaces, with the manifest's limits (pod.py): kubernetes_test.py FOLDER HELLO; FOLDER has the program hosts_job."""

import os
import re
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hosts  # noqa: E402
import hosts_test  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
MANIFEST = os.path.join(HERE, "..", "..", "examples", "kubernetes", "job.yaml")
HELLO = "hello"


def manifest():
    import yaml  # noqa: E402
    with open(MANIFEST, encoding="utf-8") as f:
        return {one["kind"]: one for one in yaml.safe_load_all(f)}


# What Kubernetes 1.24 and later knows of these objects: batch/v1 Job, core/v1 Service, PodSpec, Container.
FIELDS = {
    "": {"apiVersion", "kind", "metadata", "spec"},
    "metadata": {"name", "labels"},
    "Service": {"clusterIP", "publishNotReadyAddresses", "selector"},
    "Job": {"completionMode", "completions", "parallelism", "backoffLimit", "template"},
    "template": {"metadata", "spec"},
    "pod": {"subdomain", "restartPolicy", "automountServiceAccountToken", "securityContext", "containers", "volumes"},
    "podSecurity": {"runAsNonRoot", "runAsUser", "runAsGroup", "fsGroup", "seccompProfile"},
    "container": {"name", "image", "command", "args", "env", "securityContext", "resources", "volumeMounts"},
    "security": {"allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities"},
    "mount": {"name", "mountPath", "readOnly"},
    "secret": {"secretName", "defaultMode"},
    "emptyDir": {"medium", "sizeLimit"},
}


class Manifest(unittest.TestCase):
    def known(self, kind, value):
        self.assertLessEqual(set(value), FIELDS[kind], kind)

    def test_fields(self):
        """No field that there is not, and none that misses."""
        service, job = manifest()["Service"], manifest()["Job"]
        self.assertEqual((service["apiVersion"], job["apiVersion"]), ("v1", "batch/v1"))
        template = job["spec"]["template"]
        pod = template["spec"]
        container = pod["containers"][0]
        for kind, value in (("", service), ("", job), ("Service", service["spec"]), ("Job", job["spec"]),
                            ("metadata", service["metadata"]), ("metadata", job["metadata"]), ("template", template),
                            ("metadata", template["metadata"]), ("pod", pod), ("podSecurity", pod["securityContext"]),
                            ("container", container), ("security", container["securityContext"]),
                            *(("mount", one) for one in container["volumeMounts"])):
            self.known(kind, value)
        for volume in pod["volumes"]:
            for kind in set(volume) - {"name"}:
                self.known(kind, volume[kind])
        for one in container["env"]:
            self.assertEqual(set(one), {"name", "value"})
            self.assertIsInstance(one["value"], str)  # a number is refused
        for text in [*container["command"], *container["args"]]:
            self.assertIsInstance(text, str)

    def test_what_it_says(self):
        """Names that fit one another, and the limits that README.md tells of."""
        service, job = manifest()["Service"], manifest()["Job"]
        spec, pod = job["spec"], job["spec"]["template"]["spec"]
        container = pod["containers"][0]
        variables = {one["name"]: one["value"] for one in container["env"]}
        self.assertEqual((service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]), ("None", True))
        self.assertEqual(service["spec"]["selector"], {"job-name": job["metadata"]["name"]})
        self.assertEqual(pod["subdomain"], service["metadata"]["name"])
        self.assertEqual((spec["completionMode"], spec["completions"]), ("Indexed", spec["parallelism"]))
        self.assertEqual(int(variables["WORLD_SIZE"]), spec["completions"] * int(variables["LOCAL_WORLD_SIZE"]))
        self.assertEqual(variables["MASTER_ADDR"], f"{job['metadata']['name']}-0.{pod['subdomain']}")
        mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
        self.assertEqual(os.path.dirname(variables["TUTTI_SECRET_FILE"]), mounts["secret"])
        volumes = {one["name"]: one for one in pod["volumes"]}
        self.assertEqual(mounts["shm"], "/dev/shm")
        self.assertEqual(volumes["shm"]["emptyDir"], {"medium": "Memory", "sizeLimit": "64Mi"})
        limits = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        self.assertEqual(container["securityContext"], limits)
        self.assertTrue(pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0)
        self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})


class Pods(hosts_test.Case):
    def pods(self, program, late=0.0, seconds=60):
        """Its pods; their names come so much later. Returns what each said."""
        job = manifest()["Job"]
        n, name = job["spec"]["completions"], job["metadata"]["name"]
        net = self.net(n, plain=True)
        os.chmod(net.folder, 0o755)
        names, texts = os.path.join(net.folder, "hosts"), []
        with open(names, "w", encoding="ascii") as f:
            f.write("127.0.0.1 localhost\n")
        started = [net.start(i, [sys.executable, os.path.join(HERE, "pod.py"), net.folder, str(i), MANIFEST, *program],
                             {"TUTTI_LOG": "warn"}, os.path.join(net.folder, f"pod-{i}")) for i in reversed(range(n))]
        time.sleep(late)
        with open(names, "a", encoding="ascii") as f:
            f.writelines(f"{net.address(i)} {name}-{i}.{name} {name}-{i}\n" for i in range(n))
        for i in range(n):
            code = started[n - 1 - i].wait(seconds)
            with open(os.path.join(net.folder, f"pod-{i}"), encoding="utf-8") as f:
                texts.append(f.read())
            self.assertEqual(code, 0, texts)
        return texts

    def test_limits(self):
        """They are there: else the others prove nothing."""
        probe = ("grep -E '^(Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp):' /proc/self/status; id -u; hostname; "
                 "stat -f -c 'shm %b %S' /dev/shm; touch /x /tmp/x /var/tmp/x 2>&1; cat $TUTTI_SECRET_FILE; "
                 "echo no > $TUTTI_SECRET_FILE; ls /proc | grep -c '^[0-9]'; mount -t tmpfs x /mnt 2>&1 | head -1")
        text = self.pods(["sh", "-c", f"test $LOCAL_RANK = 1 || {{ {probe}; }} 2>&1"])[1]
        self.assertEqual(re.findall(r"Cap\w+:\s+(\w+)", text), ["0" * 16] * 4, text)
        self.assertRegex(text, r"NoNewPrivs:\s+1\nSeccomp:\s+2\n1000\ntutti-1\n")
        blocks = re.search(r"shm (\d+) (\d+)", text)
        self.assertEqual(int(blocks.group(1)) * int(blocks.group(2)), 64 << 20)
        self.assertEqual(text.count("Read-only file system"), 4, text)  # the secret's, too
        self.assertIn("sesame of the pods", text)
        self.assertLess(int(re.search(r"^(\d+)$", text[text.index("sesame"):], re.MULTILINE).group(1)), 12, text)

    def test_hello(self):
        texts = self.pods([HELLO], late=1.5)
        self.assertEqual(sorted(re.findall(r"rank (\d) of 4: the sum is 10", "".join(texts))), list("0123"))
        self.assertNotIn("warn", "".join(texts))  # about the secret's mode, about memory

    def test_all_calls(self):
        self.pods([os.path.join(hosts_test.FOLDER, "hosts_job"), "all"], seconds=120)


def main():
    global HELLO
    hosts_test.FOLDER, HELLO = sys.argv.pop(1), sys.argv.pop(1)
    try:
        import yaml  # noqa: F401
    except ImportError as why:
        raise hosts.Unavailable("there is no PyYAML (package python3-yaml)") from why
    if os.uname().machine not in ("x86_64", "aarch64"):
        raise hosts.Unavailable("the numbers of system calls are not known here")
    with hosts.Hosts(1, plain=True):  # or it can not be here
        pass
    unittest.main(verbosity=2)


if __name__ == "__main__":
    hosts.or_skip(main)
