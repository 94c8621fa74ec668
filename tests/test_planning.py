"""Planning: plans and pushes checked step by step, identification against a formula."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stepping import stepped

import silico_py as sp
from silico_py import planning
from silico_py.planning import identification, picture, planar, reach, regrasp
from silico_py.planning.task import Task

GOAL = (0.15, 0.1, np.pi / 2)
LOCK = sp.scenes.LOCK
G = 9.81
UPRIGHT = (1.0, 0.0, 0.0, 0.0)


@pytest.fixture(scope="module")
def grasp():
    return sp.scenes.grasp()


@pytest.fixture(scope="module")
def plan(grasp):
    return planning.plan_grasp(*grasp, GOAL, seed=1, tolerance=0.01)


def gap_to_tee(spots):
    """Between a finger at points (..., 2) of the object's frame and the T, two rectangles [m]."""
    boxes = [((0.0, 0.05), (0.15, 0.05)), ((0.0, -0.1), (0.05, 0.1))]
    outside = [np.maximum(np.abs(spots - center) - half, 0) for center, half in boxes]
    return np.min([np.linalg.norm(v, axis=-1) for v in outside], axis=0) - 0.04


@pytest.mark.slow
def test_stepping_through_the_plan_reaches_the_goal(grasp, plan):
    scene, state = grasp
    assert plan.reached
    for control, planned in zip(plan.controls, plan.states.position[1:], strict=True):
        state, info = stepped(scene, state, control)
        assert bool(info.converged)
        np.testing.assert_allclose(state.position, planned, atol=1e-5)
        tips = np.asarray(state.position[1:])
        assert np.linalg.norm(tips[0] - tips[1]) > 2 * 0.04
    x, y, _ = np.asarray(state.position[0])
    yaw = 2 * np.arctan2(float(state.orientation[0, 3]), float(state.orientation[0, 0]))
    gyration = float(jnp.sqrt(scene.bodies[0].inertia[2, 2]))  # 1 kg
    miss = np.array([x - GOAL[0], y - GOAL[1], gyration * (yaw - GOAL[2])])
    assert np.linalg.norm(miss) < 0.01


@pytest.mark.slow
def test_regrasps_leave_the_object_alone_and_fingers_stay_out_of_it(plan):
    lifted = np.abs(plan.controls[:, 1:, 2]).max(axis=1) > 0
    assert lifted.any()
    moved = np.diff(plan.states.position[:, 0], axis=0)
    assert np.abs(moved[lifted]).max() < 1e-5
    down = np.abs(plan.states.position[:, 1:, 2]).max(axis=1) < 1e-6
    position, orientation = plan.states.position[down], plan.states.orientation[down]
    away = position[:, 1:, :2] - position[:, :1, :2]
    yaw = 2 * np.arctan2(orientation[:, 0, 3], orientation[:, 0, 0])
    c, s = np.cos(yaw)[:, None], np.sin(yaw)[:, None]
    spots = np.stack([c * away[..., 0] + s * away[..., 1], c * away[..., 1] - s * away[..., 0]], -1)
    assert gap_to_tee(spots).min() > -1e-4
    assert gap_to_tee(spots).min() < 1e-3  # they do touch


@pytest.mark.slow
def test_a_seed_is_a_plan(grasp, plan):
    again = planning.plan_grasp(*grasp, GOAL, seed=1, tolerance=0.01)
    np.testing.assert_array_equal(again.controls, plan.controls)


@pytest.mark.slow
def test_a_search_that_is_cut_short_says_so(grasp):
    options = planning.PlannerOptions(max_rounds=1)
    plan = planning.plan_grasp(*grasp, GOAL, tolerance=1e-3, options=options)
    assert not plan.reached
    assert plan.distance > 1e-3


@pytest.mark.slow
def test_pictures_are_written(grasp, plan, tmp_path):
    path = tmp_path / "deep" / "plan.png"
    picture.draw(grasp[0], plan, np.array(GOAL), path, frames=3)
    assert path.read_bytes()[:4] == b"\x89PNG"


def test_placements_are_beside_the_object(grasp):
    task = Task.of(*grasp, GOAL)
    spots = regrasp.placements(grasp[0], task, 50, np.random.default_rng(0)).reshape(-1, 2)
    gap = gap_to_tee(spots)
    # Rays about a spot may pass a corner on both sides.
    assert gap.min() > 0
    assert gap.max() < regrasp.GAP[1] + 2e-4


def test_turns_of_an_object_count_at_its_radius_of_gyration(grasp):
    scene, state = grasp
    tee, *fingers = scene.bodies
    tee = dataclasses.replace(tee, mass=4.0, inertia=4.0 * np.diag([0.01, 0.02, 0.0225]))
    task = Task.of(dataclasses.replace(scene, bodies=[tee, *fingers]), state, GOAL)
    turned = np.array([GOAL[0], GOAL[1], GOAL[2] + 0.1])
    np.testing.assert_allclose(task.distance(turned, task.goal), 0.1 * 0.15)


def test_the_metric_prefers_what_the_fingers_can_push():
    push_x = np.array([[0.5, 0.0], [0.0, 0.0], [0.0, 0.0]])
    along, across = (reach.mahalanobis(push_x, np.array(d), 3e-3) for d in ([1, 0, 0], [0, 1, 0]))
    np.testing.assert_allclose([along, across], [1 / 0.253, 1 / 0.003], rtol=1e-12)
    u = reach.command(push_x, np.array([0.1, 0.1, 0.0]), damping=1e-20)  # far below rounding
    np.testing.assert_allclose(u, [0.2, 0.0], atol=1e-9)


def test_offsets_turn_the_short_way():
    turned = planar.offset(np.array([0.0, 0.0, 3.0]), np.array([0.0, 0.0, -3.0]))
    np.testing.assert_allclose(turned, [0.0, 0.0, 6.0 - 2 * np.pi], atol=1e-12)
    np.testing.assert_allclose(planar.turn(0.3) @ [1.0, 0.0], [np.cos(0.3), np.sin(0.3)])


def with_finger(**changes):
    """The scene with another left finger."""
    scene, _ = sp.scenes.grasp()
    tee, left, right = scene.bodies
    return dataclasses.replace(scene, bodies=[tee, dataclasses.replace(left, **changes), right])


def tilted(angle):
    """The state with the object turned about x."""
    _, state = sp.scenes.grasp()
    turn = jnp.array([np.cos(angle / 2), np.sin(angle / 2), 0.0, 0.0])
    return dataclasses.replace(state, orientation=state.orientation.at[0].set(turn))


def test_fingers_arrive_where_they_are_sent_whatever_their_stiffness(grasp):
    scene = with_finger(stiffness=(1e3, 3e2, 2e3, LOCK, LOCK, LOCK))
    _, state = grasp
    task = Task.of(scene, state, GOAL)
    moves = np.array([[-0.05, 0.1], [0.1, 0.05]])
    height = regrasp.heights(scene, task)
    up, across, down = regrasp.commands(task, 3, height, moves)
    lifted, _ = stepped(scene, state, up)
    np.testing.assert_allclose(lifted.position[1:, 2], height, atol=1e-5)
    state, _ = stepped(scene, stepped(scene, lifted, across)[0], down)
    ends = np.array([[-0.25, 0.0], [0.25, 0.0]]) + moves
    np.testing.assert_allclose(state.position[1:], np.pad(ends, ((0, 0), (0, 1))), atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"goal": (0.0, 0.0)}, "goal"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"tolerance": "a"}, "tolerance"),
        ({"seed": -1}, "seed"),
        ({"options": 3}, "options"),
        ({"state": None}, "state"),
        ({"state": tilted(0.1)}, "state: the object is tilted by 0.1 rad"),
        ({"scene": sp.scenes.drop("box")[0]}, "scene"),
        ({"scene": None}, "scene"),
        ({"scene": with_finger(stiffness=(1e3, 0.0, 1e3, LOCK, LOCK, LOCK))}, "'left' needs"),
        ({"scene": with_finger(shapes=[(sp.Sphere(0.04), (0, 0.1, 0), UPRIGHT)])}, "'left' must"),
        ({"scene": with_finger(quasi_dynamic=False)}, "'left' must be quasi_dynamic"),
        ({"scene": with_finger(stiffness=np.zeros(6))}, "got 2 and 1"),
    ],
)
def test_bad_arguments_of_a_plan(grasp, change, message):
    scene, state = grasp
    given = {"scene": scene, "state": state, "goal": GOAL, **change}
    with pytest.raises(ValueError, match=message):
        planning.plan_grasp(**given)


@pytest.mark.parametrize("name", ["relaxation", "smoothing"])
def test_a_plan_in_single_precision_is_refused_before_it_compiles(grasp, name, monkeypatch):
    monkeypatch.setattr(planning.grasp, "compile_search", pytest.fail)
    scene, state = jax.tree.map(jnp.float32, grasp)
    options = planning.PlannerOptions(**{"relaxation": 1e-3, "smoothing": 3e-3, name: 1e-6})
    with pytest.raises(ValueError, match=rf"options\.{name}: .*float32"):
        planning.plan_grasp(scene, state, GOAL, options=options)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stride", -1),
        ("pool", -1),
        ("pool", 12),
        ("goal_bias", -1),
        ("regrasp", 2),
        ("damping", -1),
    ],
)
def test_bad_planner_options(name, value):
    with pytest.raises(ValueError, match=name):
        planning.PlannerOptions(**{name: value})


def pushing(gap):
    """A box and a position-controlled ball in the plane."""
    planar_only = (0.0, 0.0, LOCK, LOCK, LOCK, 0.0)
    held = (1e3, 1e3, LOCK, LOCK, LOCK, LOCK)
    box = sp.Body("box", sp.Box(half_extents=(0.1, 0.1, 0.1)), 1.0, None, None, planar_only, True)
    ball = sp.Body("ball", sp.Sphere(radius=0.05), 1.0, stiffness=held, quasi_dynamic=True)
    scene = sp.Scene([box, ball], timestep=0.1, gravity=(0.0, 0.0, 0.0))
    return scene, scene.state(position=[[0.0, 0.0, 0.0], [-0.15 - gap, 0.0, 0.0]])


PUSHES = [
    (0.01, (0.1, 0.02, 0.0), 0.3),
    (0.01, (0.1, -0.02, 0.0), -0.2),
    (0.02, (0.12, 0.03, 0.0), 0.4),
    (0.1, (0.1, 0.0, 0.0), 0.0),
]


@pytest.mark.parametrize(("gap", "goal", "yaw"), PUSHES)
def test_a_push_across_a_gap_reaches_the_pose(gap, goal, yaw):
    scene, state = pushing(gap)
    turned = (np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2))
    push = planning.push_to(scene, state, "box", "ball", goal, turned, steps=10, limit=0.05)
    assert push.reached
    assert np.abs(push.controls).max() <= 0.05
    for control in push.controls:
        state, info = stepped(scene, state, control)
        assert bool(info.converged)
    np.testing.assert_allclose(state.position[0], goal, atol=1e-3)
    np.testing.assert_allclose(2 * np.arcsin(float(state.orientation[0, 3])), yaw, atol=0.01)


def test_bad_arguments_of_a_push():
    scene, state = pushing(0.01)
    with pytest.raises(ValueError, match="pusher"):
        planning.push_to(scene, state, "box", "hand", (0.0, 0.0, 0.0))
    with pytest.raises(ValueError, match="directions"):
        planning.push_to(scene, state, "box", "ball", (0.0, 0.0, 0.0), directions=(7,))
    with pytest.raises(ValueError, match="relaxations"):
        planning.push_to(scene, state, "box", "ball", (0.0, 0.0, 0.0), relaxations=(-1.0,))
    with pytest.raises(ValueError, match="on_trial: expected a function"):
        planning.push_to(scene, state, "box", "ball", (0.0, 0.0, 0.0), on_trial=3)
    for name, value in (("orientation", (2.0, 0, 0, 0)), ("limit", -1.0), ("tolerance", 0.0)):
        with pytest.raises(ValueError, match=name):
            planning.push_to(scene, state, "box", "ball", (0.0, 0.0, 0.0), **{name: value})


def test_what_a_push_misses_counts_turns_at_the_size():
    _, state = pushing(0.01)
    goal = planning.pushing.Goal(jnp.zeros(3), jnp.array(UPRIGHT), jnp.asarray(0.2))
    turn = sp.rotation.about((0.0, 0.0, 1.0), 0.3)
    moved = dataclasses.replace(
        state,
        position=state.position.at[0].set([0.1, 0.0, 0.0]),
        orientation=state.orientation.at[0].set(-turn),  # the same turn
    )
    miss = planning.pushing._difference(moved, goal, 0)
    np.testing.assert_allclose(miss, [0.1, 0, 0, 0, 0, 0.2 * 2 * np.sin(0.15)], atol=1e-15)


@pytest.mark.parametrize("converged", [True, False])
def test_a_push_whose_steps_fail_does_not_reach_its_goal(converged, monkeypatch):
    scene, state = pushing(0.01)
    monkeypatch.setattr(planning.pushing, "_improved", lambda *given: (given[3], 1))

    def end(*_):
        info = sp.Info(np.array([True, converged]), *6 * [None])
        trajectory = sp.Trajectory(state, info)
        return planning.pushing.End(np.zeros(6), None, np.zeros((2, 2, 6)), trajectory)

    monkeypatch.setattr(planning.pushing, "_end", end)
    push = planning.push_to(scene, state, "box", "ball", (0.0, 0.0, 0.0), relaxations=[1e-3])
    assert push.reached == converged


def sliding(parameters):
    """A flat box on the floor."""
    half = jnp.stack([jnp.asarray(0.2), jnp.asarray(0.2), jnp.asarray(parameters["half_height"])])
    box = sp.Body("box", sp.Box(half_extents=half), mass=parameters["mass"])
    return sp.Scene([box], [sp.scenes.floor()], timestep=0.02, friction=parameters["friction"])


@pytest.mark.slow
def test_identification_of_a_motion_in_closed_form():
    """The observed slide is Coulomb's law summed by hand, not a roll-out."""
    mass, friction, half, h, steps = 2.0, 0.3, 0.05, 0.02, 25
    forces = np.where(np.arange(steps) < 10, 0.0, 9.0)
    speed = 1.5 + np.cumsum(h * (forces / mass - friction * G))
    assert speed.min() > 0  # it never sticks
    position = np.zeros((steps, 1, 3))
    position[:, 0, 0], position[:, 0, 2] = h * np.cumsum(speed), half
    upright = np.tile([1.0, 0.0, 0.0, 0.0], (steps, 1, 1))
    zero = np.zeros((steps, 1, 3))
    observed = sp.State(*map(jnp.asarray, (position, upright, zero, zero)))
    start = sp.State(
        jnp.array([[0.0, 0.0, half]]), observed.orientation[0], jnp.array([[1.5, 0, 0]]), zero[0]
    )
    controls = np.zeros((steps, 1, 6))
    controls[:, 0, 0] = forces
    guess = {"mass": 1.0, "friction": 0.5, "half_height": 0.08}
    found = planning.identify(sliding, guess, start, observed, controls)
    assert found.success
    values = [found.parameters[name] for name in ("mass", "friction", "half_height")]
    np.testing.assert_allclose(values, [mass, friction, half], rtol=1e-3)


def test_identification_of_a_motion_that_is_half_a_turn_off():
    """What cannot be explained leaves what can."""
    start = sp.State(*map(jnp.asarray, ([[0.0, 0, 1]], [[1.0, 0, 0, 0]], [[0.0] * 3], [[0.0] * 3])))
    fallen = start.position - 9.0 * 0.01**2 * np.array([[[0, 0, 1]], [[0, 0, 3]], [[0, 0, 6]]])
    upside_down = np.tile([0.0, 1.0, 0.0, 0.0], (3, 1, 1))
    observed = sp.State(fallen, jnp.asarray(upside_down), *2 * [jnp.zeros((3, 1, 3))])

    def falling(p):
        return sp.Scene([sp.Body("b", sp.Sphere(0.1), 1.0)], gravity=-p["gravity"] * jnp.eye(3)[2])

    relaxations = jnp.array([1e-3, 1e-6])
    found = planning.identify(falling, {"gravity": 5.0}, start, observed, None, relaxations)
    assert found.parameters["gravity"] == pytest.approx(9.0, rel=1e-6)
    assert found.residual == pytest.approx(2 / np.sqrt(6))  # of six numbers a step


@pytest.mark.slow
@pytest.mark.parametrize("guess", [1.0, 20.0])
def test_identification_far_off(guess):
    """What slides with little friction sticks at the guess, where slopes say next to nothing. Of
    its mass no motion tells."""

    def scene_of(p):
        ball = sp.Body("ball", sp.Sphere(0.2), mass=p["mass"])
        return sp.Scene([ball], [sp.scenes.floor()], timestep=0.05, friction=p["friction"])

    scene = scene_of({"mass": 1.0, "friction": 0.05})
    start = scene.state(position=[[0, 0, 0.2]], velocity=[[1.0, 0, 0]])
    observed, trials = sp.rollout(scene, start, 6).state, []
    found = planning.identify(
        scene_of,
        {"friction": guess, "mass": 2.0, "nothing": 2.0},
        start,
        observed,
        on_trial=lambda *told: trials.append(told),
    )
    assert found.success
    assert found.parameters["friction"] == pytest.approx(0.05, rel=1e-6)
    assert found.deviations["friction"] < 1e-6
    assert found.parameters["mass"] == pytest.approx(2.0, rel=0.01)
    assert found.parameters["nothing"] == 2 and found.deviations["nothing"] == np.inf
    assert len(trials) >= found.evaluations
    assert {rho for rho, _ in trials} == {1e-3, 1e-6} and trials[-1][1] < 1e-6 < trials[0][1]


@pytest.mark.parametrize(("ended", "converged"), [(True, True), (False, True), (True, False)])
def test_deviations_are_those_of_linear_least_squares(ended, converged):
    """By the logarithms of the parameters: relative ones, of the values at the solution."""
    rng = np.random.default_rng(0)
    jacobian, residuals = rng.normal(size=(12, 2)), rng.normal(size=12)
    fit = identification._Fit(residuals, jacobian, np.array(converged))
    guess, logarithms = {"mass": 2.0, "friction": 0.5}, np.array([0.3, -0.2])
    found = identification._result(guess, logarithms, fit, 7, ended)
    values = np.array([2.0, 0.5]) * np.exp(logarithms)
    variance = residuals @ residuals / (12 - 2)
    expected = values * np.sqrt(variance * np.diag(np.linalg.inv(jacobian.T @ jacobian)))
    np.testing.assert_allclose([*found.parameters.values()], values)
    np.testing.assert_allclose([*found.deviations.values()], expected)
    assert found.success == (ended and converged)


def test_a_guess_without_a_finite_derivative_is_refused(grasp, monkeypatch):
    scene, state = grasp
    observed = jax.tree.map(lambda v: v[None], state)
    nowhere = identification._Fit(np.zeros(18), np.full((18, 1), np.inf), np.array(True))
    monkeypatch.setattr(identification, "_fits", lambda *_: lambda *_: nowhere)
    with pytest.raises(ValueError, match="guess: the roll-out has no finite derivative"):
        planning.identify(lambda p: scene, {"mass": 1.0}, state, observed)


def test_bad_arguments_of_identification(grasp):
    scene, state = grasp
    observed = jax.tree.map(lambda v: v[None], state)
    with pytest.raises(ValueError, match="make_scene"):
        planning.identify(lambda p: None, {"mass": 1.0}, state, observed)
    with pytest.raises(ValueError, match="guess"):
        planning.identify(lambda p: scene, [1.0], state, observed)
    with pytest.raises(ValueError, match="make_scene: expected a function"):
        planning.identify(scene, {"mass": 1.0}, state, observed)
    with pytest.raises(ValueError, match="observed: expected a State"):
        planning.identify(lambda p: scene, {"mass": 1.0}, state, observed.position)
    turned = dataclasses.replace(observed, orientation=2 * observed.orientation)
    with pytest.raises(ValueError, match="observed: orientation"):
        planning.identify(lambda p: scene, {"mass": 1.0}, state, turned)
    lost = dataclasses.replace(observed, position=observed.position * np.nan)
    with pytest.raises(ValueError, match="observed: position"):
        planning.identify(lambda p: scene, {"mass": 1.0}, state, lost)
    lost = dataclasses.replace(state, position=state.position * np.nan)
    with pytest.raises(ValueError, match="start: position"):
        planning.identify(lambda p: scene, {"mass": 1.0}, lost, observed)
    with pytest.raises(ValueError, match="state: position"):
        planning.plan_grasp(scene, lost, (0.1, 0.0, 0.0))
    with pytest.raises(ValueError, match="guess"):
        planning.identify(lambda p: scene, {"mass": -1.0}, state, observed)
    with pytest.raises(ValueError, match=r"guess.*mass"):
        planning.identify(lambda p: scene, {"mass": "a"}, state, observed)
    with pytest.raises(ValueError, match=r"observed: .*\(steps, n, 3\)"):
        planning.identify(lambda p: scene, {"mass": 1.0}, state, state)
    with pytest.raises(ValueError, match="start: expected a State"):
        planning.identify(lambda p: scene, {"mass": 1.0}, None, observed)
    with pytest.raises(ValueError, match="controls"):
        planning.identify(lambda p: scene, {"mass": 1.0}, state, observed, np.zeros((3, 3, 6)))
    with pytest.raises(ValueError, match="on_trial: expected a function"):
        planning.identify(lambda p: scene, {"mass": 1.0}, state, observed, on_trial=3)
