"""The README's Python runs as printed."""

import re
from pathlib import Path


def test_readme_snippets_run():
    text = (Path(__file__).parent.parent / "README.md").read_text()
    snippets = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert snippets
    for snippet in snippets:
        names = {}
        exec(compile(snippet, "README.md", "exec"), names)
    assert bool(names["trajectory"].info.converged.all())
