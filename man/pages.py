# SPDX-License-Identifier: BSD-3-Clause
"""Man pages of section 3, one for each public function, of the public headers: `pages.py ROOT FOLDER`. A page has what
the header says of the function, the structs that it takes as they are declared, and what the header says of all its
calls."""

import re
import sys
import textwrap
from pathlib import Path

DECLARATION = re.compile(r"(?:/\*(?P<before>(?:[^*]|\*(?!/))*)\*/\n)?^TUTTI_API (?P<text>[^;]*);"
                         r"(?: */\*(?P<behind>(?:[^*]|\*(?!/))*)\*/)?", re.M)


def words(comment: "str | None") -> str:
    """A comment without its stars: paragraphs, and lines that are shown as they are."""
    lines = [re.sub(r"^ \* ?", "", line) for line in (comment or "").strip().splitlines()]
    return re.sub(r"^ ", "", "\n".join(lines), flags=re.M if comment and "\n *" not in comment else 0).strip()


def escaped(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def paragraphs(text: str) -> str:
    """Paragraphs in roff; lines with an indent keep their places."""
    parts, shown = [], False
    for line in text.splitlines():
        if line.startswith("    ") != shown and line.strip():
            shown = not shown
            parts.append(".PP\n.RS 4\n.nf" if shown else ".fi\n.RE\n.PP")
        parts.append(escaped(line[4:] if shown else line) if line.strip() else "" if shown else ".PP")
    return "\n".join([*parts, ".fi\n.RE"] if shown else parts)


class Header:
    """A public header: its functions, its structs, and what it says of itself."""

    def __init__(self, path: Path):
        text = path.read_text(encoding="utf-8")
        self.name = f"tutti/{path.name}"
        about = re.search(r"^/\* (?!SPDX)((?:[^*]|\*(?!/))*)\*/\n\n#", text, re.M)
        self.about = words(about[1]) if about else ""
        self.functions = {re.search(r"(tutti_\w+)\(", one["text"])[1]: one for one in DECLARATION.finditer(text)}
        self.structs = {one[1]: one[0] for one in re.finditer(r"^struct (tutti_\w+) \{.*?^\};", text, re.M | re.S)}


def page(name: str, header: Header, structs: dict, version: str) -> str:
    """The page of one function."""
    one = header.functions[name]
    about = words(one["before"]) or words(one["behind"])
    first = (about or header.about or f"a call of {header.name}").replace("\n", " ")
    brief = re.split(r"(?<=[.:;]) ", first)[0].rstrip(".:;")
    prototype = re.sub(r"\s+", " ", one["text"].replace("TUTTI_MUST_USE", "")).strip()
    whole = re.sub(r"(?<!,) ", "\xa0", prototype) + ";"  # lines end behind commas
    shape = textwrap.fill(whole, 76, subsequent_indent="    ", break_long_words=False).replace("\xa0", " ")
    parts = [f'.TH {name} 3 "" "tutti {version}" "{header.name}"', ".SH NAME", f"{name} \\- {escaped(brief)}",
             ".SH SYNOPSIS", ".nf", f"#include <{header.name}>", "", escaped(shape), ".fi"]
    if about:
        parts += [".SH DESCRIPTION", paragraphs(about)]
    taken = [struct for struct in dict.fromkeys(re.findall(r"struct (tutti_\w+)", prototype)) if struct in structs]
    if taken:
        parts += [".SH STRUCTURES", ".nf", *(escaped(structs[struct]) + "\n" for struct in taken), ".fi"]
    if header.about:
        parts += [f'.SH "ALL CALLS OF {header.name}"', paragraphs(header.about)]
    others = ", ".join(f"{other}(3)" for other in header.functions if other != name)
    return "\n".join([*parts, ".SH SEE ALSO", f"tutti(3), tutti(7){', ' + others if others else ''}", ""])


def main(root: Path, folder: Path) -> None:
    """Writes them, and says so if the list of public names has one without a page."""
    headers = [Header(path) for path in sorted((root / "include" / "tutti").glob("*.h"))]
    structs = {name: text for header in headers for name, text in header.structs.items()}
    version = re.search(r"project\(tutti VERSION ([0-9.]+)", (root / "CMakeLists.txt").read_text())[1]
    folder.mkdir(parents=True, exist_ok=True)
    written = set()
    for header in headers:
        for name in header.functions:
            (folder / f"{name}.3").write_text(page(name, header, structs, version), encoding="utf-8")
            written.add(name)
    public = set(re.findall(r"^ *(tutti_\w+);$", (root / "cmake" / "libtutti.map").read_text(), re.M))
    if public != written:
        sys.exit(f"pages: a page or a name too few: {', '.join(sorted(public ^ written))}")
    print(f"pages: {len(written)} pages in {folder}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
