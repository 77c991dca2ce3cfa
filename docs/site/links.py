# SPDX-License-Identifier: BSD-3-Clause
"""Looks whether every link and picture of the pages leads to a file that is there, and to a place that is in it:
`links.py FOLDER`. Links to other sites are counted, not followed."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page refers to, and the places in it."""

    def __init__(self, path: Path):
        super().__init__()
        self.links, self.places = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.places.add(value)


def main(folder: str) -> None:
    """Ends with a sentence for each link that leads nowhere."""
    root = Path(folder).resolve()
    pages = {path: Page(path) for path in root.rglob("*.html")}
    broken, outside, inside = [], 0, 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                outside += 1
                continue
            inside += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                broken.append(f"{path.relative_to(root)}: there is no {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
                broken.append(f"{path.relative_to(root)}: there is no such place: {link}")
    if broken or not inside:
        sys.exit("\n".join(broken) or f"links: there are none in {folder}")
    print(f"links: all {inside} lead somewhere, of {len(pages)} pages; {outside} to other sites were not followed")


if __name__ == "__main__":
    main(*sys.argv[1:])
