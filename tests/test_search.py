"""Solutions that Newton's method does not reach from the start, approached along a family."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from folding import folded, root_of, start_at

from silico_py.solver import Options, Problem, Status, search, solve, stages
from silico_py.solver.problem import conditions, product_norm, remainder, residual_norm
from silico_py.solver.stages import Stage

RHO = jnp.asarray(1e-8)


def allow(monkeypatch, *allowed):
    """No attempt but those at these stages may take a step."""
    longests = [10 if stage in allowed else 0 for stage in Stage]
    monkeypatch.setattr(search, "_longests", lambda problem: longests)


@pytest.mark.parametrize("way", [Stage.GO_ON, Stage.FOLLOW_ON])
def test_family_leads_to_a_root_behind_a_minimum(way, monkeypatch):
    allow(monkeypatch, Stage.PART, way)
    run = jax.jit(lambda c, y: solve(folded(c), start_at(y), Options(RHO, RHO / 10, 300, 3)))
    for constant, start in product([2.5, 3.0, 6.0], [2.0, 2.5, 3.0]):
        found = run(constant, start)
        assert bool(found.converged), (constant, start, found.iterations)
        assert float(found.variables.y[0, 0]) == pytest.approx(root_of(constant), abs=1e-7)


@pytest.mark.parametrize("share", [0.1, 0.2, 0.9])
def test_family_begins_with_the_share_that_the_problem_names(share, monkeypatch):
    shares = []
    problem = replace(folded(3.0), first_share=jnp.asarray(share))
    member = Problem.member

    def seen(self, family, share):
        jax.debug.callback(lambda s: shares.append(float(s)), share, ordered=True)
        return member(self, family, share)

    monkeypatch.setattr(Problem, "member", seen)
    found = solve(problem, start_at(2.0), Options(RHO, RHO / 10, 300, 3))
    jax.effects_barrier()
    assert bool(found.converged)
    assert float(found.variables.y[0, 0]) == pytest.approx(root_of(3.0), abs=1e-7)
    assert shares[0] == pytest.approx(share)
    assert shares[-1] == 1


@pytest.mark.parametrize("blocked_first", [True, False])
def test_a_family_that_does_not_lead_on_makes_room_for_the_next(blocked_first, monkeypatch):
    allow(monkeypatch, Stage.PART, Stage.GO_ON)
    problem = folded(3.0)

    def blocked(data, share):
        return data._replace(
            nodes=jax.tree.map(lambda v: jnp.where(share < 1, jnp.nan, v), data.nodes)
        )

    ways = blocked, *problem.homotopies
    problem = replace(problem, homotopies=ways if blocked_first else ways[::-1])
    found = solve(problem, start_at(2.0), Options(RHO, RHO / 10, 300, 3))
    assert bool(found.converged), found.iterations
    assert float(found.variables.y[0, 0]) == pytest.approx(root_of(3.0), abs=1e-7)


def first_lead(problem):
    """Without a guess."""
    no, far = jnp.asarray(False), jnp.asarray(jnp.inf)
    return stages.leads(problem, stages.Base(start_at(2.0), far, far, exact=no, usable=no))[0]


def after_failure(problem, lead, error, stalled, has_other=False):
    """The lead after an attempt of its that ended with this error."""
    measures = SimpleNamespace(residual=jnp.asarray(error), error=jnp.asarray(error))
    it = SimpleNamespace(w=start_at(2.0), measures=measures, stalled=jnp.asarray(stalled))
    return stages.following(problem, (lead,), it, jnp.asarray(False), has_other)[0]


@pytest.mark.parametrize(
    ("stage", "looked", "has_other", "expected"),
    [
        (Stage.GUESSED, 1e-3, True, Stage.OTHER),
        (Stage.GUESSED, 1e-3, False, Stage.COLD),
        (Stage.GUESSED, 0.1, True, Stage.COLD),
        (Stage.OTHER, 1e-3, True, Stage.COLD),
    ],
)
def test_another_guess_is_tried_after_one_that_was_close(stage, looked, has_other, expected):
    problem = folded(3.0)
    lead = first_lead(problem)._replace(stage=jnp.asarray(stage), looked=jnp.asarray(looked))
    assert int(after_failure(problem, lead, 1e-2, True, has_other).stage) == expected


def test_where_solutions_end_a_member_beyond_is_next():
    problem = folded(3.0)
    lead = first_lead(problem)
    lead = lead._replace(
        stage=jnp.asarray(Stage.FOLLOW_ON),
        solved=jnp.asarray(0.6),
        share=jnp.asarray(0.6 + stages.LEAST_WAY / 2),
    )
    after = after_failure(problem, lead, error=1.0, stalled=False)
    assert int(after.stage) == Stage.PART  # from the start again
    assert float(after.share) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("nodes", "stalled", "error", "expected"),
    [
        (1, True, 1.0, Stage.EASED),
        (1, True, 1e-3, Stage.TURN),
        (3, True, 1.0, Stage.EASED),
        (3, True, 0.1, Stage.TURN),
        (3, False, 1.0, Stage.TURN),
    ],
)
def test_a_path_is_followed_close_to_a_solution_or_where_folds_are_many(
    nodes, stalled, error, expected
):
    problem = replace(folded(3.0), node_scale=jnp.ones((nodes, 1)))
    lead = first_lead(problem)
    assert int(lead.stage) == Stage.COLD
    assert int(after_failure(problem, lead, error, stalled).stage) == expected


def test_share_of_the_whole_is_like_none():
    ways = folded(3.0), replace(folded(3.0), first_share=jnp.ones(()))
    counts = [solve(p, start_at(2.0), Options(RHO, RHO / 10, 300, 3)).iterations for p in ways]
    assert int(counts[0]) == int(counts[1])


def test_without_a_family_a_singular_start_is_left():
    problem = replace(folded(6.0), homotopies=())
    found = solve(problem, start_at(1.0), Options(RHO, RHO / 10, 300, 3))
    assert bool(found.converged), found.iterations


@pytest.mark.parametrize("rho", [1e-3, 1e-8])
def test_softer_limits_lie_between_one_and_the_relaxation(rho):
    whole = Options(jnp.asarray(rho), jnp.asarray(rho / 10), 300)
    for share in (1.0, 0.5, 1e-9):
        softer = whole.softer(jnp.asarray(share))
        assert float(softer.relaxation) == pytest.approx(rho**share)
        assert float(softer.tolerance) == pytest.approx(rho**share / 10)


@jax.jit
def limited(limit):
    return solve(folded(6.0), start_at(2.0), Options(RHO, RHO / 10, limit))


@pytest.mark.parametrize("limit", range(5, 60, 9))
def test_what_ends_early_is_judged_by_the_problem_itself(limit):
    problem, found = folded(6.0), limited(limit)
    c = conditions(problem, found.variables)
    assert int(found.iterations) <= limit
    assert float(found.residual) == pytest.approx(float(residual_norm(problem, c)), rel=1e-9)
    off = float(product_norm(remainder(problem, c, RHO)))
    assert float(found.complementarity) == pytest.approx(off, rel=1e-9)
    solved = max(float(found.residual), off) <= RHO / 10
    assert (found.status == Status.CONVERGED) == solved
