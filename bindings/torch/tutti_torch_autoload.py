# SPDX-License-Identifier: BSD-3-Clause
"""What `import torch` calls in every process of an environment that has tutti_torch (entry point group torch.backends):
it must cost nothing and never fail unless it was asked for. A module of its own, so that nothing of the package is
loaded before one of the two variables asks for it."""

import os

VARIABLES = ("TUTTI_TORCH_DEFAULT", "TUTTI_TORCH_REPLACE")


def autoload() -> None:
    """Loads tutti_torch, which does what the variables say, where one of them is set."""
    named = [name for name in VARIABLES if os.environ.get(name)]
    if not named:
        return
    try:
        import tutti_torch  # noqa: F401
    except Exception as error:
        raise RuntimeError(f"{' and '.join(named)} asks for tutti_torch, which can not be loaded: {error}") from error
