"""What a step says of its outcome."""

import silico_py as sp
from silico_py import solver


def test_every_outcome_of_the_solver_is_one_of_a_step():
    for outcome in solver.Status:
        assert sp.Status(outcome).name == outcome.name


def test_every_status_advises():
    messages = [status.message for status in sp.Status]
    assert len(set(messages)) == len(sp.Status)
    assert "max_iterations" in sp.Status.MAX_ITERATIONS.message
    assert "relaxation" in sp.Status.STALLED.message
    assert "time step" in sp.Status.STALLED.message
    assert "finite" in sp.Status.NOT_FINITE.message
    assert "max_contacts" in sp.Status.INCOMPLETE.message
