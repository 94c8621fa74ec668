"""Steps of a millisecond: room for friction to turn that no solution knows of, few iterations."""

import dataclasses

import jax
import numpy as np
import pytest
from stepping import begun, stepped, turned

import silico_py as sp
from silico_py import contact, friction
from silico_py.solver.problem import is_interior

TIMESTEP, FRICTION, RHO = 1e-3, 0.2, 1e-6


def on_floor(shape, name="body", timestep=TIMESTEP):
    body = sp.Body(name, [shape], mass=1.0)
    return sp.Scene([body], [sp.scenes.floor()], timestep=timestep, friction=FRICTION)


@pytest.mark.parametrize(
    "method", ["single-level", pytest.param("bilevel", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("speed", [1e-3, 0.1])
def test_leeway_does_not_change_the_solution(monkeypatch, method, speed):
    """A ball that sticks, and one that slides."""
    found = []
    for leeway in (contact.LEEWAY, 0.0):
        monkeypatch.setattr(contact, "LEEWAY", leeway)
        scene = on_floor(sp.Sphere(0.2), f"{method}, {leeway}")  # no program knows this name yet
        state = scene.state([[0, 0, 0.2]], velocity=[[0.8 * speed, 0.6 * speed, 0]])
        after, info = stepped(scene, state, relaxation=RHO, method=method)
        assert info.converged
        found.append((after, info.contacts.force))
    for one, other in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)


def begun_second_step(scene):
    """Of a ball that slides along x."""
    state = scene.state([[0, 0, 0.2]], velocity=[[0.1, 0, 0]])
    after, info = stepped(scene, state, relaxation=RHO)
    return begun(scene, after, RHO, guess=info.guess)


@pytest.mark.parametrize("radius", [None, 0.05])
def test_the_other_guess_has_no_direction_of_friction(radius):
    scene = dataclasses.replace(on_floor(sp.Sphere(0.2)), torsional_radius=radius)
    second = begun_second_step(scene)
    known = jax.tree.map(lambda v: v[0], second.guess.variables)
    other = second.guess.other.variables
    assert is_interior(second.problem, other)
    np.testing.assert_array_equal(other.y, known.y)
    radii = second.batches[0].contacts.radii
    cut = friction.first_row(other.cells[0].dual.shape[1], radii)
    pairs = zip(known.cells[0][1:], other.cells[0][1:], strict=True)
    for before, without in pairs:
        assert abs(before[0, cut + 1]) > 0  # it slides along x
        np.testing.assert_array_equal(without[0, cut + 1 :], 0)
        np.testing.assert_array_equal(without[0, :cut], before[0, :cut])


@pytest.mark.parametrize(("timestep", "expected"), [(TIMESTEP, True), (0.02, False)])
def test_the_other_guess_is_for_short_steps(timestep, expected):
    second = begun_second_step(on_floor(sp.Sphere(0.2), timestep=timestep))
    assert bool(second.guess.other.usable) == expected


@pytest.mark.slow
def test_few_short_steps_take_many_iterations():
    """Of tumbling boxes and cones; without leeway and the other guess 32 take more than 30."""
    rng, many = np.random.default_rng(5), 0
    for shape in (sp.Box((0.25, 0.25, 0.25)), sp.Cone(0.2, 0.5)):
        scene = on_floor(shape)
        for turn in turned(rng, 20, 1):
            velocity, spin = rng.normal(size=(2, 1, 3))
            state = scene.state([[0, 0, 0.5]], turn, velocity, spin)
            steps = sp.rollout(scene, state, 700, sp.SolverOptions(relaxation=1e-8))
            assert steps.info.converged.all()
            many += int((steps.info.iterations > 30).sum())
    assert many < 10
