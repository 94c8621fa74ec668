"""`python -m silico_py` is the command `silico`."""

from silico_py.cli import command

command()
