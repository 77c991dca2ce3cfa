# SPDX-License-Identifier: BSD-3-Clause
"""Sphinx's settings for the pages that `./dev docs` makes: the guides of docs/, the C reference by Doxygen and breathe,
the Python reference from the module's stubs and texts by autoapi."""

import os
import re
from pathlib import Path

ROOT = Path(os.environ["TUTTI_ROOT"])
BUILT = Path(os.environ["TUTTI_DOCS"])

project = "tutti"
version = release = re.search(r"project\(tutti VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
extensions = ["myst_parser", "breathe", "autoapi.extension", "sphinx_copybutton"]
html_theme = "furo"
html_title = f"tutti {version}"
html_show_copyright = False
smartquotes = False  # -- is an option
html_static_path = ["static"]
html_css_files = ["tables.css"]
exclude_patterns = ["site/Doxyfile"]
suppress_warnings = ["misc.highlighting_failure", "duplicate_declaration.c"]

myst_heading_anchors = 4
myst_enable_extensions = ["fieldlist"]

breathe_projects = {"tutti": str(BUILT / "doxygen" / "xml")}
breathe_default_project = "tutti"
breathe_domain_by_extension = {"h": "c"}
c_id_attributes = ["TUTTI_API", "TUTTI_MUST_USE"]

autoapi_dirs = [str(BUILT / "python" / "tutti")]
autoapi_root = "python"
autoapi_add_toctree_entry = False
autoapi_options = ["members", "undoc-members"]


def setup(app):
    """Names of the stubs alone are not told."""
    app.connect("autoapi-skip-member", lambda app, what, name, obj, skip, options:
                skip or name in ("tutti.Self", "tutti.Buffer", "tutti.Counts"))
