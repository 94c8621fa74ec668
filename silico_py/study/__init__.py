"""Single-level against bilevel: section VI-B of the single-level paper, and beyond it."""

from silico_py.study.command import OTHERS as OTHERS
from silico_py.study.command import study as study
from silico_py.study.experiments import drops as drops
from silico_py.study.experiments import stacks as stacks
from silico_py.study.experiments import timed_grid as timed_grid
from silico_py.study.experiments import timing as timing
