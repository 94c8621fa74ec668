"""What a step says of its outcome."""

import silico_py as sp
from silico_py import solver


def test_every_outcome_of_a_search_is_one_of_a_step():
    for outcome in set(solver.Status) - {solver.Status.STALLED}:  # of monotone problems alone
        assert sp.Status(outcome).name == outcome.name


def test_every_status_advises():
    messages = [status.message for status in sp.Status]
    assert len(set(messages)) == len(sp.Status)
    assert "max_iterations" in sp.Status.MAX_ITERATIONS.message
    assert "relaxation" in sp.Status.MAX_ITERATIONS.message
    assert "time step" in sp.Status.MAX_ITERATIONS.message
    assert "collision_relaxation" in sp.Status.UNLOCATED.message
    assert "finite" in sp.Status.NOT_FINITE.message
    assert "max_contacts" in sp.Status.INCOMPLETE.message
