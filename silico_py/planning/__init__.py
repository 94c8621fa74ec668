"""Planning through contact: grasps, pushes and identification."""

from silico_py.planning.grasp import Plan as Plan
from silico_py.planning.grasp import plan_grasp as plan_grasp
from silico_py.planning.options import PlannerOptions as PlannerOptions
