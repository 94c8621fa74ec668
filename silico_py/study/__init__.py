"""Single-level against bilevel: section VI-B of the single-level paper, and beyond it."""

from silico_py.study.command import OTHERS as OTHERS
from silico_py.study.command import study as study
