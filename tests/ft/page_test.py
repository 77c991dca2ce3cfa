# SPDX-License-Identifier: BSD-3-Clause
"""What people see of a lighthouse: the page without a browser and, where there is one, in Chromium; JSON; metrics.
Groups have names that would be code if anything forgot to escape them."""

import json
import shutil
import subprocess
import sys
import unittest
from html.parser import HTMLParser

from lighthouse import Client, Lighthouse, lacks, wait_for

tutti = sys.argv.pop(1)
EVIL = [
    b"<script>alert(1)</script>",
    b"\"'><img src=x onerror=alert(1)>",
    b"\xff\x01\xed\xa0\x80\xc3",
    b"a&amp;b",
    "Zürich".encode(),
    b"plain",
]


# A document that keeps texts apart from elements: what the script makes of the JSON, as lines "tag class: text".
DOM = """
const made = new Map();
class Element {
  constructor(tag) { this.tag = tag; this.parts = []; this.attributes = {}; this.dataset = {}; this.handlers = {};
    this.classList = {add() {}, remove() {}}; }
  set textContent(text) { this.parts = [String(text)]; }
  set innerHTML(text) { throw new Error('HTML from text'); }
  setAttribute(name, value) { this.attributes[name] = value; }
  append(...parts) { this.parts.push(...parts); }
  replaceChildren(...parts) { this.parts = parts; }
  addEventListener(name, handler) { this.handlers[name] = handler; }
  get tBodies() { this.body ??= new Element('tbody'); return [this.body]; }
  lines() { return [this.tag + ' ' + (this.attributes.class ?? '') + ': ' +
    JSON.stringify(this.parts.filter(part => typeof part === 'string').join('')),
    ...[this.body, ...this.parts].filter(part => part instanceof Element).flatMap(part => part.lines())]; }
}
globalThis.document = {createElement: tag => new Element(tag), getElementById: id => {
  if (!made.has(id)) made.set(id, new Element('#' + id)); return made.get(id); }};
globalThis.location = {search: ''};
globalThis.setInterval = () => 0;
const [script, status] = JSON.parse(require('fs').readFileSync(0));
globalThis.fetch = async () => ({ok: true, json: async () => JSON.parse(status), text: async () => status});
(0, eval)(script);
setTimeout(() => console.log(JSON.stringify([...made.values()].flatMap(e => e.lines()))), 50);
"""


class Page(HTMLParser):
    """All elements, and the texts of cells."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.cells, self.inside = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag == "td":
            self.cells.append("")
        self.inside = tag

    def handle_data(self, data):
        if self.inside == "td":
            self.cells[-1] += data


class Seen(unittest.TestCase):
    def setUp(self):
        self.lighthouse = Lighthouse(tutti, "--heartbeat-timeout-ms", "60000")
        self.addCleanup(self.lighthouse.__exit__)
        self.client = Client(self.lighthouse.port)
        self.addCleanup(self.client.close)

    def json(self):
        return json.loads(self.lighthouse.get("/status.json")[1])

    def gather(self):
        """All of EVIL are one quorum, the last one behind the others."""
        for name in EVIL:
            self.assertEqual(self.client.heartbeat(name), b"")
        streams = [self.client.ask(name, 7 - (name == EVIL[-1])) for name in EVIL]
        for stream in streams:
            self.client.answer(stream)
        wait_for(lambda: self.json()["quorum"])

    def test_page_is_whole(self):
        page = Page(self.lighthouse.get("/")[1])
        self.assertEqual(self.lighthouse.get("/status")[1], self.lighthouse.get("/")[1])
        for tag, attributes in page.elements:
            for name in ("src", "href", "action", "data", "poster", "srcset"):
                where = attributes.get(name, "/")
                self.assertTrue(where.startswith("/") and not where.startswith("//") or where == "data:,", where)
            self.assertFalse([name for name in attributes if name.startswith("on")], "code in an attribute")
        self.assertEqual([a for t, a in page.elements if t in ("script", "img", "iframe")], [
            {"src": "/page.js", "defer": None}])
        for text in ("/page.css", "/page.js"):
            self.assertNotIn("http", self.lighthouse.get(text)[1])

    def test_script_makes_text_of_names(self):
        node = shutil.which("node")
        if not node:
            self.skipTest("there is no node")
        self.gather()
        status = wait_for(lambda: (lambda t: t if '"step":7' in t else "")(self.lighthouse.get("/status.json")[1]))
        both = json.dumps([self.lighthouse.get("/page.js")[1], status])
        run = subprocess.run([node, "-e", DOM], input=both, capture_output=True, text=True, timeout=100, check=True)
        lines = json.loads(run.stdout)
        for name in EVIL:
            self.assertIn(f"td : {json.dumps(name.decode(errors='replace'), ensure_ascii=False)}", lines)
        self.assertEqual([line for line in lines if line.startswith(("script", "img"))], [])
        whole = "\n".join(lines)
        for words in ("tr healing:", "#trust : \"unauthenticated", "Quorum 1 of 6 groups at step 7, 1 healing",
                      "nobody can be a member", "quorum 1: 6 groups", "a here: \"default\""):
            self.assertIn(words, whole)
        self.assertNotIn("button", whole)

    def test_json_and_metrics(self):
        self.gather()
        status = wait_for(lambda: (lambda s: s if s["groups"] and "step" in s["groups"][0] else None)(self.json()))
        self.assertEqual([len(status["groups"]), status["known"], status["healing"]], [6, 6, 1])
        self.assertEqual(status["quorum"]["quorum_id"], 1)
        names = sorted(group["replica_id"] for group in status["groups"])
        self.assertEqual(names, sorted(name.decode(errors="replace") for name in EVIL))
        self.assertFalse(status["authenticated"])
        lines = wait_for(lambda: (lambda t: t if 'quorum_groups{job="default"} 6' in t else "")(
            self.lighthouse.get("/metrics")[1])).splitlines()
        names = {line.split("{")[0] for line in lines if not line.startswith("#")}
        self.assertEqual(len(names), len(lines) // 3)
        self.assertIn('tutti_lighthouse_heartbeats_total{job="default"} 6', lines)
        self.assertEqual(self.lighthouse.get("/status.json?job=none")[0], 404)

    def test_status_command(self):
        self.gather()
        address = f"http://127.0.0.1:{self.lighthouse.port}"
        run = subprocess.run([tutti, "ft", "status", address], capture_output=True, text=True, check=True)
        for words in ("job default, unauthenticated", "quorum 1 of 6 groups at step 7, 1 healing", "nobody can be"):
            self.assertIn(words, run.stdout)
        self.assertRegex(run.stdout, r"(?m)^plain +healing +6 ")
        self.assertRegex(run.stdout, r"(?m)^<script>alert\(1\)</script> +member +7 ")
        whole = subprocess.run([tutti, "ft", "status", "--json", address], capture_output=True, text=True, check=True)
        self.assertEqual(json.loads(whole.stdout)["quorum"]["groups"], 6)
        for wrong in ("nonsense", "http://127.0.0.1:1", address.replace("//", "//none@")):
            run = subprocess.run([tutti, "ft", "status", wrong], capture_output=True, text=True, check=False)
            self.assertEqual([run.returncode, run.stdout], [1, ""])
            self.assertIn("tutti ft status: ", run.stderr)
        status = [tutti, "ft", "status", "http://localhost:99999"]
        run = subprocess.run(status, capture_output=True, text=True, timeout=60, check=False)
        self.assertIn("is no address", run.stderr)
        bind = [tutti, "lighthouse", "--bind", "localhost:99999", "--min-replicas", "1"]
        run = subprocess.run(bind, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(run.returncode, 1)
        self.assertIn('"localhost:99999" is no address to listen at', run.stderr)

    def test_nobody_kills_without_a_secret(self):
        self.gather()
        status, text = self.lighthouse.get("/replica/plain/kill", "POST", {"Authorization": "Bearer "})
        self.assertEqual(status, 403)
        self.assertIn("unauthenticated", text)
        self.assertEqual(self.lighthouse.get("/replica/plain/kill")[0], 404)
        self.assertEqual(self.lighthouse.get("/", "DELETE")[0], 405)

    def test_why_there_is_none_and_who_is_lost(self):
        with Lighthouse(tutti, "--heartbeat-timeout-ms", "300", "--min-replicas", "2") as lighthouse:
            client = Client(lighthouse.port)
            client.ask(b"alone")
            wait_for(lambda: "need min_replicas 2" in lighthouse.get("/status.json")[1])
            wait_for(lambda: "alone is not heard any more" in lighthouse.get("/status.json")[1])
            client.close()
            self.assertEqual(lighthouse.end(), 0)

    def test_in_chromium(self):
        browser = shutil.which("chromium") or shutil.which("chromium-browser")
        if not browser:
            self.skipTest("there is no chromium")
        self.gather()
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom"]
        url = f"http://127.0.0.1:{self.lighthouse.port}/"
        page = Page(subprocess.run([*command, url], capture_output=True, text=True, timeout=100, check=True).stdout)
        self.assertIn("plain", page.cells)  # the script has run, and ours alone
        self.assertIn(EVIL[0].decode(), page.cells)
        self.assertEqual(len([1 for tag, _ in page.elements if tag == "script"]), 1)
        self.assertFalse([1 for tag, _ in page.elements if tag == "img"])


if __name__ == "__main__":
    why = lacks(tutti)
    if why:
        print("SKIP:", why)
        sys.exit(77)
    unittest.main(verbosity=2)
