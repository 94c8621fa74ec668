"""A third opinion on collisions and steps, written a second time by other means.

Nothing here calls the solver, the slacks or the integrator of the simulator: shapes are asked for
their parameters, and for a point inside and a mesh where any will do. Units are those of the
simulator, with its constants. Collision programs are modelled in cvxpy and solved by Clarabel or
ECOS, steps are checked in numpy, signs of distances come from coal. For tests and for doubts,
not for speed. Needs the extra `reference` (and `separation` for `separation_sign`).
"""

from silico_py.reference.certificate import certified_bound as certified_bound
from silico_py.reference.collision import Collision as Collision
from silico_py.reference.collision import collide as collide
from silico_py.reference.collision import gauge as gauge
from silico_py.reference.report import Condition as Condition
from silico_py.reference.report import StepReport as StepReport
from silico_py.reference.sampling import KINDS as KINDS
from silico_py.reference.sampling import Pair as Pair
from silico_py.reference.sampling import random_pair as random_pair
from silico_py.reference.separation import separation_sign as separation_sign
from silico_py.reference.step import check_step as check_step
