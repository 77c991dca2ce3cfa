# SPDX-License-Identifier: BSD-3-Clause
"""The command tutti of an installed package: the program beside this file takes this process over."""

import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "tutti")
    if not os.path.exists(program):
        sys.exit(f"tutti: there is no {program}: this package was not made by ./dev wheel")
    os.execv(program, ["tutti", *sys.argv[1:]])


if __name__ == "__main__":
    main()
