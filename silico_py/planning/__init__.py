"""Planning through contact: grasps, pushes and identification."""

from silico_py.planning.grasp import Plan as Plan
from silico_py.planning.grasp import plan_grasp as plan_grasp
from silico_py.planning.identification import Identified as Identified
from silico_py.planning.identification import identify as identify
from silico_py.planning.options import PlannerOptions as PlannerOptions
from silico_py.planning.pushing import Push as Push
from silico_py.planning.pushing import push_to as push_to
