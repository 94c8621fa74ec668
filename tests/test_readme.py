"""The README's Python runs as printed."""

import re
from pathlib import Path


def test_readme_snippets_run():
    text = (Path(__file__).parent.parent / "README.md").read_text()
    snippets = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert snippets
    names = {}  # later snippets use what earlier ones made
    for snippet in snippets:
        exec(compile(snippet, "README.md", "exec"), names)
    assert bool(names["trajectory"].info.converged.all())
    assert names["A"].shape == (12, 12) and names["B"].shape == (12, 6)
    assert names["slope"].shape == (1, 6)
