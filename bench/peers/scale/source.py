# SPDX-License-Identifier: BSD-3-Clause
"""What a tree of sources is: its commit, and what was changed since."""

from __future__ import annotations

import hashlib
import re
import subprocess

from ..programs import ROOT


def git(*words: str) -> str:
    """What it prints; nothing where there is no repository, or no git."""
    try:
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, errors="replace").stdout
    except OSError:
        return ""


def source() -> dict:
    commit = git("rev-parse", "--short", "HEAD").strip()
    if not re.fullmatch("[0-9a-f]+", commit):
        return {"commit": "unknown commit", "dirty": None, "changes": ""}
    changes = git("status", "--porcelain")
    digest = hashlib.sha256((changes + git("diff", "HEAD")).encode(errors="replace")).hexdigest()[:12]
    return {"commit": commit, "dirty": bool(changes), "changes": digest if changes else ""}


def source_text(found: dict) -> str:
    return found["commit"] + (", with changes" if found.get("dirty") else "")
