"""Interior point for relaxed complementarity problems over cones."""

from silico_py.solver.cones import ProductCone as ProductCone
from silico_py.solver.custom_derivative import attached as attached
from silico_py.solver.custom_transpose import linear as linear
from silico_py.solver.fusion import compact as compact
from silico_py.solver.fusion import one_by_one as one_by_one
from silico_py.solver.fusion import undivided as undivided
from silico_py.solver.implicit_derivative import implicit as implicit
from silico_py.solver.implicit_derivative import node_sensitivity as node_sensitivity
from silico_py.solver.implicit_derivative import separate_rows as separate_rows
from silico_py.solver.iterate import Options as Options
from silico_py.solver.problem import CellGroup as CellGroup
from silico_py.solver.problem import CellJacobian as CellJacobian
from silico_py.solver.problem import CellResidual as CellResidual
from silico_py.solver.problem import Problem as Problem
from silico_py.solver.problem import ProblemData as ProblemData
from silico_py.solver.rules import differentiated_as as differentiated_as
from silico_py.solver.rules import jvp_of_active as jvp_of_active
from silico_py.solver.search import Guess as Guess
from silico_py.solver.search import Solution as Solution
from silico_py.solver.search import fused_if_small as fused_if_small
from silico_py.solver.search import solve as solve
from silico_py.solver.status import Status as Status
from silico_py.solver.vectors import CellVariables as CellVariables
from silico_py.solver.vectors import Variables as Variables
