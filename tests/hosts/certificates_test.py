# SPDX-License-Identifier: BSD-3-Clause
"""Jobs whose processes prove themselves by certificates: certificates_test.py FOLDER TUTTI HELLO [CLASS[.TEST] ...].
The certificates are made by the commands of docs/security.md (tests/certificates.sh)."""

import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
import hosts  # noqa: E402
import hosts_test  # noqa: E402
import trust_test  # noqa: E402

TUTTI = HELLO = FILES = "."
NONE = {"TUTTI_TLS_CA": "", "TUTTI_TLS_CERT": "", "TUTTI_TLS_KEY": ""}


def certificate(cert, ca="ca", name=""):
    """The options of a process that has it."""
    return {"TUTTI_SECRET": "", "TUTTI_TLS_CA": f"{FILES}/{ca}.pem", "TUTTI_TLS_CERT": f"{FILES}/{cert}.pem",
            "TUTTI_TLS_KEY": f"{FILES}/{cert}.key", "TUTTI_TLS_NAME": name}


def visit(address, port, cert):
    """What a stranger with this certificate (None: without) hears at a port: words of an alert, or 'in'."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if cert:
        context.load_cert_chain(f"{FILES}/{cert}.pem", f"{FILES}/{cert}.key")
    try:
        with socket.create_connection((address, int(port)), timeout=5) as raw, context.wrap_socket(raw) as tls:
            return "in" if tls.recv(1) else "closed"
    except (OSError, ssl.SSLError) as why:
        return str(why).lower()


class Job(hosts_test.Case):
    """Ranks on several hosts."""

    late, ports, readable = trust_test.Trust.late, trust_test.Trust.ports, trust_test.Trust.readable
    stranger, written, attack = trust_test.Trust.stranger, trust_test.Trust.written, trust_test.Trust.attack

    def meet(self, n_hosts, a_host, words, env, last=None):
        """A job whose last rank comes later, with another environment."""
        net = self.net(n_hosts, plain=True)
        program = [os.path.join(hosts_test.FOLDER, "hosts_job"), *words]
        total = n_hosts * a_host
        ranks = net.ranks(a_host, program, env={"TUTTI_LOG": "warn", "JOB_TIMEOUT": "4", **env},
                          without=() if last is None else (total - 1,))
        if last is not None:
            end = time.monotonic() + 20
            while not self.ports(net, 0) and ranks[0].process.poll() is None and time.monotonic() < end:
                time.sleep(0.05)
            ranks.append(self.late(net, ranks[0], program, {"TUTTI_LOG": "warn", "JOB_TIMEOUT": "4", **env, **last}))
        return net, ranks

    def test_one_ca(self):
        net, ranks = self.meet(2, 2, ["all", "loop=1"], {**certificate("rank", name="job-42"), "TUTTI_ENCRYPT": "1"})
        self.ends_well(net, ranks)

    def test_a_certificate_of_each_host(self):
        """One of them under a CA in between."""
        net, ranks = self.meet(2, 1, ["all", "loop=1"], certificate("rank"), certificate("under"))
        self.ends_well(net, ranks)

    def stays_out(self, env, last, says, hears):
        """The last rank does not get in, and the first one says why in its log."""
        net, ranks = self.meet(2, 1, ["all"], env, last)
        self.assertEqual(net.wait(ranks, 40), [1, 1], self.said(ranks))
        self.assertRegex(ranks[0].text(), says, self.said(ranks))
        self.assertRegex(ranks[1].text(), hears, self.said(ranks))
        self.assertNotIn("ready", self.said(ranks))

    def test_another_ca(self):
        self.stays_out(certificate("rank"), certificate("other", ca="both-ca"),
                       r"refused 10\.77\.0\.2 at the meeting.*CN ?= ?other\).*unable to get local issuer",
                       "rank 1 does not get into the meeting.*host .*it knows another CA")

    def test_another_name(self):
        self.stays_out(certificate("rank", name="job-42"), certificate("nameless"), "hostname mismatch",
                       "does not accept this process's certificate")

    SECRET = {**NONE, "TUTTI_SECRET": "sesame"}

    def test_a_secret_beside_certificates(self):
        """The file that they meet at is signed by one of them, here and below."""
        self.stays_out(certificate("rank"), self.SECRET, "rank 1 did not arrive", "with another secret, or without one")

    def test_a_certificate_beside_secrets(self):
        self.stays_out(self.SECRET, certificate("rank"), "rank 1 did not arrive", "with another secret, or without one")

    def test_nothing(self):
        self.stays_out(certificate("rank"), NONE, "rank 1 did not arrive", "hosts do not talk without the job's secret")

    def test_both(self):
        net, ranks = self.meet(2, 1, ["all"], {**certificate("rank"), "TUTTI_SECRET": "sesame"})
        self.assertEqual(net.wait(ranks, 40), [1, 1], self.said(ranks))
        for rank in ranks:
            self.assertIn("prove themselves by one of them", rank.text())

    def test_expired(self):
        net, ranks = self.meet(2, 1, ["all"], certificate("old"))
        self.assertEqual(net.wait(ranks, 40), [1, 1], self.said(ranks))
        self.assertIn("certificate has expired", ranks[0].text())

    def test_who_listens_reads_no_control(self):
        text = self.readable(certificate("rank"))
        self.assertNotIn("ping", text)
        self.assertIn("tls", text)

    def test_floods(self):
        self.attack(certificate("rank"))

    def test_stranger_at_a_job(self):
        """Each kind of stranger at each port of a rank: it hears what is wrong, the log says it, the job goes on."""
        net, ranks = self.meet(3, 1, ["all", "loop=14"], certificate("rank"))
        self.until(ranks, "looping", 60)
        kinds = [("old", "expired", "certificate has expired"), ("other", "unknown ca", "unable to get local issuer"),
                 (None, "certificate required", "it shows no certificate"), ("rank", "in", None)]
        for port in self.ports(net, 0):
            for kind, hears, logged in kinds:
                time.sleep(1.1)  # the log tells one refusal a second
                words = subprocess.run(["ip", "netns", "exec", net.names[1], sys.executable, __file__, "visit", FILES,
                                        net.address(0), port, kind or "-"], capture_output=True, text=True, timeout=30,
                                       check=True).stdout
                self.assertIn(hears, words.replace("_", " "), f"{kind}")
                if logged:
                    self.assertRegex(ranks[0].text(), rf"refused a connection from 10\.77\.0\.2: .*{logged}")
        self.ends_well(net, ranks)


class Store(unittest.TestCase):
    """The store of tutti run, and ranks of one host that are told to go by the network."""

    def run_job(self, env, *before, timeout=60):
        done = subprocess.run([TUTTI, "run", "-n", "3", "env", *before, HELLO], capture_output=True, text=True,
                              timeout=timeout, env={**os.environ, "TUTTI_LOG": "warn", **env})
        return done.returncode, done.stdout + done.stderr

    def test_ranks(self):
        code, text = self.run_job({**certificate("rank", name="job-42"), "TUTTI_TRANSPORT": "tcp"})
        self.assertEqual((code, text.count("the sum is 6")), (0, 3), text)

    def test_a_rank_of_another_ca(self):
        wrong = [f"{name}={value}" for name, value in certificate("other", ca="both-ca").items()]
        code, text = self.run_job(certificate("rank"), *wrong)
        self.assertNotEqual(code, 0)
        self.assertRegex(text, r"the store at .*it does not accept this process's certificate: it knows another CA")
        self.assertRegex(text, r"the store's server refused .*its certificate \(.*other\) is not good here")

    def test_a_rank_with_a_secret(self):
        words = [f"{name}={value}" for name, value in {**NONE, "TUTTI_SECRET": "sesame"}.items()]
        code, text = self.run_job(certificate("rank"), *words)
        self.assertNotEqual(code, 0)
        self.assertRegex(text, "the store at .*: it takes certificates alone, and this process has none")
        self.assertRegex(text, "the store's server refused .*it shows no certificate")

    def test_a_rank_with_a_certificate_beside_secrets(self):
        words = ["TUTTI_SECRET_FILE=", *(f"{name}={value}" for name, value in certificate("rank").items())]
        code, text = self.run_job({**NONE, "TUTTI_SECRET": "sesame"}, *words)
        self.assertNotEqual(code, 0)
        self.assertRegex(text, "the store at .*it has none itself, or can not use it")
        self.assertRegex(text, "the store's server refused .*by a certificate, and this process has none")

    def test_no_secret_is_made(self):
        done = subprocess.run([TUTTI, "run", "-n", "1", "env"], capture_output=True, text=True, timeout=60,
                              env={**os.environ, **certificate("rank")})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotRegex(done.stdout, "TUTTI_SECRET=.")


def main():
    global TUTTI, HELLO, FILES
    if sys.argv[1] == "visit":
        FILES = sys.argv[2]
        print(visit(sys.argv[3], sys.argv[4], None if sys.argv[5] == "-" else sys.argv[5]))
        return
    hosts_test.FOLDER, TUTTI, HELLO = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1)
    if not shutil.which("openssl"):
        raise hosts.Unavailable("there is no program openssl, which makes the certificates")
    with tempfile.TemporaryDirectory(prefix="tutti-certificates-") as folder:
        FILES = folder
        subprocess.run(["sh", os.path.join(SOURCE, "tests", "certificates.sh"), SOURCE, folder], check=True,
                       capture_output=True, timeout=60)
        with hosts.Hosts(1, plain=True):  # or it can not be here
            pass
        unittest.main(verbosity=2)


if __name__ == "__main__":
    hosts.or_skip(main)
