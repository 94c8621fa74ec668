"""`python -m benchmarks [NAME ...] [--quick]`; results in out/benchmarks/*.json."""

from __future__ import annotations

import argparse

import jax
from rich.console import Console

from benchmarks import peg, robustness_floor, stacks

ALL = {"robustness_floor": robustness_floor.run, "stacks": stacks.run, "peg": peg.run}


def main() -> None:
    """Run the named benchmarks, all of them by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(ALL)}")
    parser.add_argument("--quick", action="store_true", help="a taste in minutes")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(ALL)
    if unknown:
        parser.error(f"unknown benchmarks {sorted(unknown)}; choose from {sorted(ALL)}")
    # Relaxations down to 1e-10 need double precision.
    jax.config.update("jax_enable_x64", True)
    console = Console()
    for name in arguments.names or ALL:
        ALL[name](arguments.quick, console)


if __name__ == "__main__":
    main()
