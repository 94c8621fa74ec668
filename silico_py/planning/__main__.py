"""Plan a grasp: `python -m silico_py.planning`; the exit code is 1 when the goal is not reached."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import jax

from silico_py.planning import command


def main() -> int:
    """Read the arguments and plan."""
    parser = argparse.ArgumentParser(prog="python -m silico_py.planning", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the picture")
    parser.add_argument(
        "--goal", type=float, nargs=3, default=command.GOAL, metavar=("X", "Y", "YAW")
    )
    parser.add_argument("--seed", type=int, default=0, help="of the samples")
    given = parser.parse_args()
    # Tight relaxations need double precision; the choice is the program's, not the library's.
    jax.config.update("jax_enable_x64", True)
    try:
        return 0 if command.plan_ready_scene(given.out, tuple(given.goal), given.seed) else 1
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
