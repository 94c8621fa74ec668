"""Arrays have the shapes that signatures say.

Programs are traced and not run: shapes are known by then.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SETUP = """
import sys
from pathlib import Path

import jax
from jaxtyping import install_import_hook

jax.config.update("jax_enable_x64", True)
root = Path(sys.argv[1])
rooms = [root, root / "primitives", root / "solver"]  # the last two are links
files = [path for room in rooms for path in room.rglob("*.py") if path.stem != "__init__"]
names = {".".join(("silico_py", *path.relative_to(root).with_suffix("").parts)) for path in files}
install_import_hook(sorted(names), "annotations.checked")

import silico_py as sp

scene, state = sp.scenes.planar_push()
"""
PROGRAMS = """
jax.make_jaxpr(lambda state: sp.linearize(scene, state, with_step=True))(state)


def end(state):
    return sp.rollout(scene, state, 2).state.position.sum()


jax.make_jaxpr(jax.grad(end))(state)

for options in (sp.SolverOptions(method="bilevel"), sp.SolverOptions(max_contacts=1)):
    jax.make_jaxpr(lambda state, how=options: sp.step(scene, state, None, how))(state)
"""
A_WRONG_SHAPE = """
import jaxtyping

try:
    sp.rotation.between(jax.numpy.zeros(3), jax.numpy.zeros(4))
except jaxtyping.TypeCheckError:
    pass
else:
    raise AssertionError("no annotation was checked")
"""


def test_arrays_have_the_shapes_of_their_annotations():
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r})\n"
    code += SETUP + PROGRAMS + A_WRONG_SHAPE
    command = [sys.executable, "-c", code, str(ROOT / "silico_py")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-4000:]
