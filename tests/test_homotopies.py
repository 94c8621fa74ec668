"""The families of easier steps that lead to a step."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from stepping import assembled

import silico_py as sp
from silico_py import homotopies


@pytest.fixture(scope="module")
def problem():
    scene, state = sp.scenes.stack(2, timestep=0.1)
    rng = np.random.default_rng(0)
    state = scene.state(
        position=state.position,
        velocity=rng.normal(size=(2, 3)),
        angular_velocity=rng.normal(size=(2, 3)),
    )
    return assembled(scene, state, 1e-6, rng.normal(size=(2, 6)))[0]


@pytest.mark.parametrize("family", [homotopies.shorter, homotopies.calmer])
def test_the_whole_share_is_the_step_itself(problem, family):
    jax.tree.map(np.testing.assert_array_equal, family(problem.data, 1.0), problem.data)


def test_shorter_steps_have_a_share_of_the_duration(problem):
    data = homotopies.shorter(problem.data, 0.25)
    motions, groups = data.nodes, data.cells
    np.testing.assert_allclose(motions.timestep, 0.025)
    for contact in groups:
        np.testing.assert_allclose(contact.a.motion.timestep, 0.025)
    np.testing.assert_array_equal(motions.velocity, problem.node_data.velocity)


def test_calmer_steps_have_a_share_of_motion_force_friction_and_size(problem):
    data = homotopies.calmer(problem.data, 0.25)
    motions, groups = data.nodes, data.cells
    for name in ("velocity", "angular_velocity", "force", "torque"):
        np.testing.assert_allclose(getattr(motions, name), getattr(problem.node_data, name) / 4)
    np.testing.assert_array_equal(motions.timestep, problem.node_data.timestep)
    for contact, group in zip(groups, problem.groups, strict=True):
        whole = group.data
        np.testing.assert_allclose(contact.friction, whole.friction / 4)
        np.testing.assert_allclose(contact.least_alpha, 0.25)
        for side, before in ((contact.a, whole.a), (contact.b, whole.b)):
            if before.motion is not None:  # the same as that of its body
                np.testing.assert_allclose(side.motion.velocity, before.motion.velocity / 4)
        np.testing.assert_allclose(contact.impulse, whole.impulse / 4)


def test_bodies_that_rush_at_each_other_keep_the_effect_of_contacts(problem):
    rushing = replace(problem, first_share=np.array(0.5))
    for contact, group in zip(
        homotopies.calmer(rushing.data, 0.25).cells, problem.groups, strict=True
    ):
        np.testing.assert_array_equal(contact.impulse, group.data.impulse)
