"""The Python of the README and of docs/ runs as printed: a page is one program."""

import re
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).parent.parent
PAGES = {page.name: page for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]}
LANGUAGES = {"python", "bash", "text", "xml"}
# What a page says of its results.
CLAIMS = {
    "README.md": [
        "trajectory.info.converged.all()",
        "A.shape == (12, 12) and B.shape == (12, 6)",
        "slope.shape == (1, 6)",
    ],
    "gradients.md": ["abs(slope / (-9.81 * 0.01) - 1) < 0.01", "A.shape == (3, 12, 12)"],
    "index.md": ["Path('out/ball.html').is_file()"],
    "batches.md": [
        "abs(distance * 2 * 9.81 * friction - 1).max() < 0.15",
        "memory.steps.tolist() == [2] * 8",
    ],
    "concepts.md": [
        "abs(trajectory.state.angular_velocity[-1, 0, 2]) < 1e-3",
        "abs(ride.state.position[-1, :, 0] - 0.2).max() < 3e-3",
        "abs(belt.velocity[-1, 0, 0] - 0.2) < 1e-6 and not belt.position[-1, 1].any()",
        "abs(on_body[-1, 0] - [0, 0, 9.81]).max() < 0.02",
        "abs(pushed.velocity[0, 0] - (5 + 0.6 * 9.81) * 0.01) < 2e-3",
        "len(more.pairs) == 6 and len(fewer.pairs) == 3 and start.position.shape == (2, 3)",
    ],
    "viewing.md": [
        "trajectory.info.converged.all()",
        "Path('out/loop.html').is_file() and Path('out/loop.png').is_file()",
    ],
    "planning.md": [
        "found.success and abs(found.parameters['friction'] - 0.4) < 1e-3",
        "push.reached and plan.reached",
    ],
    "models.md": [
        "[body.name for body in scene.bodies] == ['crate'] and len(scene.environment) == 1",
        "[body.name for body in robot.bodies] == ['base'] and len(robot.bodies[0].pieces) == 2",
        "Path('scene.xml').is_file()",
    ],
}


def blocks(page):
    """(language, text) of every fenced block, which may be indented."""
    return re.findall(r"^ *```(.*?)\n(.*?)^ *```$", page.read_text(), re.DOTALL | re.MULTILINE)


def snippets(page):
    return [text for language, text in blocks(page) if language == "python"]


WITH_SNIPPETS = [name for name, page in PAGES.items() if snippets(page)]
SLOW = {"batches.md", "concepts.md", "gradients.md", "planning.md"}
RUN = [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in WITH_SNIPPETS]


@pytest.fixture
def single_precision():
    """As a reader starts; other tests have switched to double."""
    jax.config.update("jax_enable_x64", False)
    yield
    jax.config.update("jax_enable_x64", True)


@pytest.mark.parametrize("name", RUN)
def test_snippets_run(name, single_precision, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    if name == "models.md":
        pytest.importorskip("mujoco")
    names = {}  # later snippets use what earlier ones made
    for snippet in snippets(PAGES[name]):
        exec(compile(snippet, name, "exec"), names)
    for claim in CLAIMS.get(name, ()):
        assert eval(claim, {**names, "Path": Path}), claim


def test_pages_with_claims_have_snippets():
    assert set(CLAIMS) <= set(WITH_SNIPPETS)


@pytest.mark.parametrize("name", PAGES)
def test_blocks_name_their_language(name):
    """A block of another name would not be run, and nobody would see that."""
    unknown = {language for language, _ in blocks(PAGES[name])} - LANGUAGES
    assert not unknown
