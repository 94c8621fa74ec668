"""Shape primitives: sets written as cones, with their mass properties and meshes."""

from silico_py.primitives._base import ConvexShape as ConvexShape
from silico_py.primitives._base import MassProperties as MassProperties
from silico_py.primitives._base import Shape as Shape
from silico_py.primitives._base import primitive as primitive
from silico_py.primitives._pytree import assign as assign
from silico_py.primitives._pytree import pytree as pytree
from silico_py.primitives._pytree import pytree_dataclass as pytree_dataclass
from silico_py.primitives._pytree import static as static
from silico_py.primitives.box import Box as Box
from silico_py.primitives.bundle import Bundle as Bundle
from silico_py.primitives.capsule import Capsule as Capsule
from silico_py.primitives.cone import Cone as Cone
from silico_py.primitives.cylinder import Cylinder as Cylinder
from silico_py.primitives.ellipsoid import Ellipsoid as Ellipsoid
from silico_py.primitives.half_space import HalfSpace as HalfSpace
from silico_py.primitives.minkowski_sum import MinkowskiSum as MinkowskiSum
from silico_py.primitives.padded_polytope import PaddedPolytope as PaddedPolytope
from silico_py.primitives.polytope import Polytope as Polytope
from silico_py.primitives.sphere import Sphere as Sphere
