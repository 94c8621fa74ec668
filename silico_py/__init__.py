"""Differentiable rigid-body contact simulation: one complementarity problem a step."""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from silico_py import rotation as rotation
from silico_py import scenes as scenes
from silico_py.applied_force import force_at as force_at
from silico_py.body import Body as Body
from silico_py.collision import Collision as Collision
from silico_py.collision import collide as collide
from silico_py.compilation import compiler_options as compiler_options
from silico_py.contact_gaps import gaps as gaps
from silico_py.failed_steps import Failure as Failure
from silico_py.failed_steps import failures as failures
from silico_py.linearization import linearize as linearize
from silico_py.mechanics import Momentum as Momentum
from silico_py.mechanics import energy as energy
from silico_py.mechanics import momentum as momentum
from silico_py.models import ModelWarning as ModelWarning
from silico_py.models import UnsupportedModelError as UnsupportedModelError
from silico_py.models import load_mesh as load_mesh
from silico_py.models import load_model as load_model
from silico_py.models import save_model as save_model
from silico_py.one_step import ContactInfo as ContactInfo
from silico_py.one_step import Info as Info
from silico_py.options import SolverOptions as SolverOptions
from silico_py.primitives import Box as Box
from silico_py.primitives import Bundle as Bundle
from silico_py.primitives import Capsule as Capsule
from silico_py.primitives import Cone as Cone
from silico_py.primitives import Cylinder as Cylinder
from silico_py.primitives import Ellipsoid as Ellipsoid
from silico_py.primitives import HalfSpace as HalfSpace
from silico_py.primitives import MinkowskiSum as MinkowskiSum
from silico_py.primitives import PaddedPolytope as PaddedPolytope
from silico_py.primitives import Polytope as Polytope
from silico_py.primitives import Sphere as Sphere
from silico_py.scene import ContactPair as ContactPair
from silico_py.scene import Fixture as Fixture
from silico_py.scene import Scene as Scene
from silico_py.scene import State as State
from silico_py.simulate import Trajectory as Trajectory
from silico_py.simulate import no_guess as no_guess
from silico_py.simulate import rollout as rollout
from silico_py.simulate import step as step
from silico_py.status import Status as Status
from silico_py.viewing import save_html as save_html
from silico_py.viewing import show as show
from silico_py.viewing import view as view
from silico_py.warm_start import Remembered as Remembered

if _TYPE_CHECKING:
    from silico_py import planning as planning
    from silico_py import reference as reference
    from silico_py import study as study

_LATER = {"planning", "reference", "study"}  # packages that are imported when they are asked for


def __getattr__(name: str) -> _Any:
    """`__version__`, looked up when asked for: a checkout that is not installed has none; and the
    packages that are imported later."""
    from importlib import import_module
    from importlib.metadata import version

    if name == "__version__":
        return version("silico-py")
    if name in _LATER:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """What there is, with the packages that are imported later."""
    return sorted({*globals(), *_LATER})
