"""Bad input is refused at construction, by a ValueError that names the argument."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import silico_py as sp
from silico_py import planning
from silico_py.primitives._checks import parameter
from silico_py.scene import Fixture, check_state
from silico_py.tangents import perturb


def box() -> sp.Box:
    return sp.Box(half_extents=(0.1, 0.1, 0.1))


def body(**changes) -> sp.Body:
    return sp.Body(**{"name": "box", "shapes": box(), "mass": 1.0, **changes})


def scene(**changes) -> sp.Scene:
    return sp.Scene(**{"bodies": [body()], **changes})


def floor() -> sp.HalfSpace:
    return sp.HalfSpace(normal=(0, 0, 1), offset=0.0)


def vector_of_32(name, value):
    return parameter(name, value, (), np.dtype(np.float32))


LOOSE = sp.SolverOptions(relaxation=1e-3)
SMOOTHED = sp.SolverOptions(gradient_relaxation=1e-3)
POSE = ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))

CASES = {
    "truth among numbers": ("half_extents", lambda: sp.Box((0.1, 0.1, True))),
    "masked numbers": ("half_extents", lambda: sp.Box(np.ma.array([1.0, 2, 3], mask=[0, 1, 0]))),
    "too large for the precision": (
        "radius: 1e\\+39 is too large for float32",
        lambda: vector_of_32("radius", 1e39),
    ),
    "too small for the precision": (
        "radius: must be positive",
        lambda: parameter("radius", 1e-60, (), np.dtype(np.float32), positive=True),
    ),
    "inertia of a body hardly": ("inertia", lambda: body(inertia=np.diag([1.0, 1.0, 2.01]))),
    "a truth for a polish": ("polish", lambda: sp.SolverOptions(polish=True)),
    "a truth for a relaxation": ("relaxation", lambda: sp.SolverOptions(relaxation=True)),
    "a little too tight": ("relaxation", lambda: step(options=sp.SolverOptions(relaxation=9e-13))),
    "topology": ("topology", lambda: sp.Polytope(np.eye(3), np.ones(3), topology="all")),
    "failures of a trajectory": ("info: expected an Info", lambda: sp.failures(scene(), ())),
    "a placed shape that is not in a list": (
        r"shapes: pieces\[1\]: expected a shape or \(shape, position, orientation\), got \(0.0",
        lambda: body(shapes=(box(), *POSE)),
    ),
    "controls of one step": (
        r"controls: expected shape \(any, 1, 6\), got \(1, 6\)",
        lambda: sp.rollout(scene(), scene().state(), np.zeros((1, 6))),
    ),
    "relaxations that no precision carries": (
        "relaxations: 1e-13 is below 1e-12",
        lambda: push(relaxations=[1e-13]),
    ),
    "failures of another scene": (
        r"info: has contacts of shape \(0,\), expected \(1,\)",
        lambda: sp.failures(on_floor(), step()[1]),
    ),
    "fewer contacts than none": ("contacts", lambda: sp.failures(scene(), step()[1], -1)),
    "gaps of an info": (
        "contacts: expected `info.contacts` of a step, got Info",
        lambda: sp.gaps(scene(), scene().state(), step()[1]),
    ),
    "gaps of another scene": (
        r"contacts: normal: expected shape \(1, 3\)",
        lambda: sp.gaps(on_floor(), on_floor().state(), step()[1].contacts),
    ),
    "force at nobody": ("body: expected one of", lambda: force_at("ball")),
    "force at a driven body": (
        "body: 'box' has stiffness",
        lambda: force_at(bodies=[body(stiffness=[0, 0, 0, 0, 0, 1e9])]),
    ),
    "force without a point": ("point: expected shape", lambda: force_at(point=(0, 0))),
    "force of nobody's frame": ("frame: expected one of", lambda: force_at(frame="box")),
    "change of one body for two": (
        "change",
        lambda: perturb(scene(bodies=[body(), body(name="b")]).state(), np.zeros(12)),
    ),
    "point in the plane": (
        "x: expected shape \\(3,\\), got \\(2,\\)",
        lambda: box().gauge(np.zeros(2)),
    ),
    "points at once": ("x: .*jax.vmap", lambda: box().contains(np.zeros((4, 3)))),
    "direction of words": ("direction", lambda: box().support("up")),
    "axis without direction": ("axis", lambda: sp.rotation.about((0.0, 0.0, 0.0), 1.0)),
    "axis in the plane": ("axis", lambda: sp.rotation.about((1.0, 0.0), 1.0)),
    "axes there are not": ("axis", lambda: sp.scenes.tilt(3, 0.1)),
    "negative mass": ("mass", lambda: body(mass=-1.0)),
    "zero mass": ("mass", lambda: body(mass=0.0)),
    "NaN mass": ("mass", lambda: body(mass=np.nan)),
    "inertia shape": ("inertia", lambda: body(inertia=np.eye(2))),
    "inertia asymmetric": ("inertia", lambda: body(inertia=np.eye(3) + np.eye(3, k=1))),
    "inertia indefinite": ("inertia", lambda: body(inertia=np.diag([1.0, 1.0, -1.0]))),
    "inertia of no body": ("inertia", lambda: body(inertia=np.diag([1.0, 1.0, 2.5]))),
    "centre of mass": ("center_of_mass", lambda: body(center_of_mass=(0, 0))),
    "no shapes": ("shapes", lambda: body(shapes=[])),
    "half-space on a body": (r"shapes: pieces\[0\]", lambda: body(shapes=[floor()])),
    "shape quaternion": ("orientation", lambda: body(shapes=[(box(), (0, 0, 0), (1, 1, 0, 0))])),
    "no bodies": ("bodies", lambda: scene(bodies=[])),
    "not a body": ("bodies", lambda: scene(bodies=[box()])),
    "repeated names": ("bodies", lambda: scene(bodies=[body(), body()])),
    "one pair": ("exclude.*a list of pairs", lambda: scene(exclude=("box", "ball"))),
    "friction by name": ("friction.*each of the 0 `pairs`", lambda: scene(friction={"box": 1})),
    "unknown exclude": ("exclude", lambda: scene(exclude=[("box", "ball")])),
    "exclude itself": ("exclude", lambda: scene(exclude=[("box", "box")])),
    "unknown fixture": ("exclude", lambda: scene(environment=[floor()], exclude=[("box", 1)])),
    "negative fixture": ("exclude", lambda: scene(environment=[floor()], exclude=[("box", -1)])),
    "fixture and unknown body": (
        "exclude",
        lambda: scene(environment=[floor()], exclude=[("ball", 0)]),
    ),
    "two fixtures": ("exclude", lambda: scene(environment=[floor(), box()], exclude=[(0, 1)])),
    "environment": ("environment", lambda: scene(environment=["floor"])),
    "fixture of no shape": ("environment", lambda: fixed("floor", *POSE)),
    "fixture's quaternion": ("orientation", lambda: fixed(box(), POSE[0], (2.0, 0.0, 0.0, 0.0))),
    "complex position": ("position", lambda: scene().state(position=np.full((1, 3), 1j))),
    "zero time step": ("timestep", lambda: scene(timestep=0.0)),
    "negative friction": ("friction", lambda: scene(friction=-0.1)),
    "negative friction of one": ("friction", lambda: scene(environment=[floor()], friction=[-0.1])),
    "ragged friction": ("friction", lambda: scene(environment=[floor()], friction=[[0.1], 0.2])),
    "truth for friction": ("friction", lambda: scene(friction=True)),
    "negative radius": ("torsional_radius", lambda: scene(torsional_radius=-0.1)),
    "NaN for a radius": ("rolling_radius", lambda: scene(rolling_radius=float("nan"))),
    "radii of no pair": (
        "rolling_radius: .*one for each of the 1 `pairs`, got 2$",
        lambda: scene(environment=[floor()], rolling_radius=[0.1, 0.2]),
    ),
    "truth for a mass": ("mass", lambda: body(mass=True)),
    "friction of no pair": ("friction", lambda: scene(environment=[floor()], friction=[0.1, 0.2])),
    "friction of a scene with fewer pairs": (
        "friction: .*one for each of the 2 `pairs`, got 1$",
        lambda: dataclasses.replace(
            scene(environment=[floor()], friction=[0.1]),
            environment=[floor(), box()],
        ),
    ),
    "several numbers for one": (
        r"guess\['mass'\]: expected one number, got an array of shape \(2,\)$",
        lambda: planning.identify(lambda _: scene(), {"mass": [1.0, 2.0]}, None, None),
    ),
    "too few numbers": (
        r"gravity: expected shape \(3,\), got \(2,\)$",
        lambda: scene(gravity=(0, 1)),
    ),
    "numbers in another shape": (
        r"position: expected shape \(1, 3\), got \(3,\); reshape it$",
        lambda: scene().state(position=[0, 0, 1]),
    ),
    "gravity shape": ("gravity", lambda: scene(gravity=(0, -9.81))),
    "position shape": ("position", lambda: scene().state(position=[0, 0, 1])),
    "NaN velocity": ("velocity", lambda: scene().state(velocity=[[0, 0, np.nan]])),
    "long quaternion": ("orientation", lambda: scene().state(orientation=[[1, 1, 0, 0]])),
    "zero quaternion": ("orientation", lambda: scene().state(orientation=[[0, 0, 0, 0]])),
    "changed to a long quaternion": (
        "orientation",
        lambda: step(orientation=jnp.array([[1.01, 0.0, 0.0, 0.0]])),
    ),
    "changed to a flat velocity": ("velocity", lambda: step(velocity=jnp.zeros(3))),
    "changed to a list": ("position", lambda: step(position=[[0.0, 0.0, 1.0]])),
    "changed to integers": ("velocity", lambda: step(velocity=jnp.zeros((1, 3), int))),
    "changed in part to single": (
        "velocity",
        lambda: step(velocity=jnp.zeros((1, 3), jnp.float32)),
    ),
    "state of another scene": (
        "position",
        lambda: sp.step(scene(), scene(bodies=[body(), body(name="other")]).state()),
    ),
    "single state, double scene": (
        "state",
        lambda: sp.rollout(scene(), jax.tree.map(jnp.float32, scene().state()), 2, LOOSE),
    ),
    "single time step": ("timestep", lambda: scene(timestep=np.float32(0.01))),
    "single scene, double friction": (
        "scene.friction",
        lambda: single_but_for_friction(scene()),
    ),
    "NaN control": ("control", lambda: step(control=np.full((1, 6), np.nan))),
    "control shape": ("control", lambda: step(control=np.zeros(6))),
    "controls shape": ("controls", lambda: sp.rollout(scene(), scene().state(), np.zeros((3, 6)))),
    "relaxation": ("relaxation", lambda: sp.SolverOptions(relaxation=0.0)),
    "infinite relaxation": ("relaxation", lambda: sp.SolverOptions(relaxation=np.inf)),
    "no relaxation": ("relaxation", lambda: sp.SolverOptions(relaxation=None)),
    "text": ("relaxation", lambda: sp.SolverOptions(relaxation="1e-6")),
    "half an iteration": ("max_iterations", lambda: sp.SolverOptions(max_iterations=10.5)),
    "half a polish": ("polish", lambda: sp.SolverOptions(polish=1.5)),
    "word for a flag": ("warm_start", lambda: sp.SolverOptions(warm_start="no")),
    "flag for a number": ("max_contacts", lambda: sp.SolverOptions(max_contacts=True)),
    "too tight": ("relaxation", lambda: step(options=sp.SolverOptions(relaxation=1e-14))),
    "iterations": ("max_iterations", lambda: sp.SolverOptions(max_iterations=0)),
    "contacts": ("max_contacts", lambda: sp.SolverOptions(max_contacts=0)),
    "list of contacts": ("max_contacts", lambda: sp.SolverOptions(max_contacts=[4, 4])),
    "three limits of contacts": ("max_contacts", lambda: sp.SolverOptions(max_contacts=(1, 2, 3))),
    "method": ("method", lambda: sp.SolverOptions(method="magic")),
    "drop": ("primitive", lambda: sp.scenes.drop("teapot")),
    "stack": ("n", lambda: sp.scenes.stack(0)),
    "two half-spaces": ("shape_b", lambda: sp.collide(floor(), POSE, floor(), POSE)),
    "bundle of two": ("shape_b", lambda: collide(sp.Bundle([(box(), *POSE)]))),
    "negative rho": ("relaxation", lambda: collide(box(), relaxation=-1.0)),
    "no iteration": ("max_iterations", lambda: collide(box(), max_iterations=0)),
    "pose": ("pose_b", lambda: sp.collide(box(), POSE, box(), ((0, 0), (1, 0, 0, 0)))),
    "empty bundle": ("pieces", lambda: sp.Bundle([])),
    "no bundle": ("pieces", lambda: sp.Bundle(None)),
    "body for bodies": ("bodies", lambda: scene(bodies=body())),
    "no environment": ("environment", lambda: scene(environment=None)),
    "fixture for environment": ("environment", lambda: scene(environment=floor())),
    "text for friction": ("friction", lambda: scene(friction="0.5")),
    "text for a position": ("position", lambda: scene().state(position=[["0", "0", "1"]])),
    "ragged controls": ("controls", lambda: sp.rollout(scene(), scene().state(), [[1], [1, 2]])),
    "negative steps": ("controls", lambda: sp.rollout(scene(), scene().state(), -3)),
    "part of a step": ("controls", lambda: sp.rollout(scene(), scene().state(), 10.0)),
    "dictionary": ("options", lambda: step(options={"relaxation": 1e-6})),
    "stacked scenes": ("scene: is a batch", lambda: sp.step(stacked(), scene().state())),
    "no state": ("state", lambda: sp.step(scene(), (1, 2))),
    "number for the guess of a linearisation": (
        "guess",
        lambda: sp.linearize(scene(), scene().state(), guess=3),
    ),
    "number for the guess of a smoothed step": (
        "guess",
        lambda: sp.step(scene(), scene().state(), None, SMOOTHED, 3),
    ),
    "collision relaxation of a linearisation": (
        "collision_relaxation",
        lambda: sp.linearize(*single(), options=sp.SolverOptions(method="bilevel")),
    ),
    "number for a guess": ("guess", lambda: sp.step(scene(), scene().state(), guess=3)),
    "traced number of steps": (
        "controls: a number of steps must be a Python int",
        lambda: jax.jit(lambda n: sp.rollout(scene(), scene().state(), n))(3),
    ),
    "options for controls": (
        "controls: .*got SolverOptions$",
        lambda: sp.rollout(scene(), scene().state(), LOOSE),
    ),
    "options for a control": (
        "control: .*got SolverOptions$",
        lambda: sp.step(scene(), scene().state(), LOOSE),
    ),
    "truth for steps": ("controls", lambda: sp.rollout(scene(), scene().state(), True)),
    "no name": ("name", lambda: body(name=None)),
    "none for shapes": ("shapes", lambda: body(shapes=None)),
    "no pairs": ("exclude", lambda: scene(exclude=None)),
    "word for quasi-dynamic": ("quasi_dynamic", lambda: body(quasi_dynamic="no")),
    "number for a warm start": (
        "collision_warm_start",
        lambda: sp.SolverOptions(collision_warm_start=3),
    ),
    "half an iteration of a collision": (
        "max_iterations",
        lambda: collide(box(), max_iterations=1.5),
    ),
    "too tight, in a planner": ("relaxations", lambda: push(relaxations=(1e-20,))),
    "no relaxation of a planner": ("relaxations", lambda: push(relaxations=())),
    "half a step": ("steps", lambda: push(steps=2.5)),
    "no smoothing": ("smoothing", lambda: sp.linearize(scene(), scene().state(), smoothing=[])),
    "pose that is none": ("pose_b: expected", lambda: sp.collide(box(), POSE, box(), None)),
    "pose of three": ("pose_b: expected", lambda: sp.collide(box(), POSE, box(), (*POSE, 1))),
    "half a block": ("n: must be an int", lambda: sp.scenes.stack(2.5)),
    "no blocks": ("n: must be an int", lambda: sp.scenes.heap(0)),
    "drop of two": ("primitive", lambda: sp.scenes.drop(["box"])),
    "a peg too wide": ("clearance", lambda: sp.scenes.peg_in_hole(clearance=-0.1)),
    "a pusher in its box": ("gap", lambda: sp.scenes.planar_push(gap=-0.1)),
    "a smoothing in words": (
        "smoothing",
        lambda: sp.linearize(scene(), scene().state(), None, "a"),
    ),
    "nested smoothings": (
        "smoothing",
        lambda: sp.linearize(scene(), scene().state(), None, [1e-3, [1e-4]]),
    ),
    "ragged relaxation": ("relaxation", lambda: sp.SolverOptions(relaxation=[1, [2]])),
    "method of numbers": ("method", lambda: sp.SolverOptions(method=np.zeros((3, 3)))),
    "excluded truth": ("exclude", lambda: scene(exclude=[("box", True)])),
    "excluded arrays": ("exclude", lambda: scene(exclude=[jnp.float32(1)])),
    "no guess of no scene": ("scene", lambda: sp.no_guess(None, scene().state())),
    "no guess of no state": ("state", lambda: sp.no_guess(scene(), 3)),
    "flat change of two bodies": ("change", lambda: perturb(two_states(), jnp.zeros(24))),
    "number for a callback": (
        "on_round",
        lambda: planning.plan_grasp(*sp.scenes.grasp(), (0.0, 0.0, 0.0), on_round=3),
    ),
    "no peg": ("clearance", lambda: sp.scenes.peg_in_hole(clearance=1)),
    "turned without end": ("angle", lambda: sp.scenes.peg_in_hole(angle=np.inf)),
    "excluded numbers": ("exclude", lambda: scene(exclude=[1, 2])),
    "huge mass": ("mass", lambda: body(mass=10**400)),
    "ragged flag": ("warm_start", lambda: sp.SolverOptions(warm_start=[[1, 2], [3]])),
    "no scene": ("scene", lambda: sp.step(None, scene().state())),
    "no state of a push": ("state", lambda: push(start=None)),
    "one relaxation of a planner": ("relaxations", lambda: push(relaxations=1e-3)),
    "one direction twice": ("directions", lambda: push(directions=(0, 0))),
    "planner's relaxation in words": ("relaxation", lambda: planner(relaxation="a")),
    "half a batch": ("batch", lambda: planner(batch=2.5)),
    "planner's margin": ("margin", lambda: planner(margin=(0.1, 0.1))),
    "planner": ("relaxation", lambda: planner(relaxation=-1.0)),
    "unbounded": ("A", lambda: sp.Polytope(jnp.eye(3), jnp.ones(3))),
}


def collide(other, **options):
    return sp.collide(box(), POSE, other, POSE, **options)


planner = planning.PlannerOptions


def push(**options):
    start = options.pop("start", scene().state())
    return planning.push_to(scene(), start, "box", "box", (0.0, 0.0, 0.0), **options)


def two_states():
    return scene(bodies=[body(), body(name="other")]).state()


def fixed(*parts):
    return scene(environment=[Fixture(*parts)])


def stacked():
    return jax.tree.map(lambda v: jnp.stack([v, v]), scene())


def single():
    return jax.tree.map(jnp.float32, (scene(), scene().state()))


def single_but_for_friction(double):
    changed, state = jax.tree.map(jnp.float32, (double, double.state()))
    changed = dataclasses.replace(changed, friction=np.array(0.3))
    return sp.step(changed, state, options=LOOSE)


def step(control=None, options=None, **changes):
    return sp.step(scene(), dataclasses.replace(scene().state(), **changes), control, options)


def on_floor():
    return scene(environment=[floor()])


def force_at(name="box", point=(0, 0, 0), frame="world", **changes):
    made = scene(**changes)
    return sp.force_at(made, made.state(), name, point, (1, 0, 0), frame=frame)


@pytest.mark.parametrize("case", CASES)
def test_bad_input_names_its_argument(case):
    argument, call = CASES[case]
    with pytest.raises(ValueError, match=argument):
        call()


WHILE_DIFFERENTIATED = {
    "mass": lambda v: body(mass=v).mass,
    "inertia": lambda v: body(inertia=v * jnp.eye(3)).mass,
    "stiffness": lambda v: body(stiffness=[v] * 6).mass,
    "friction": lambda v: scene(friction=v).timestep,
    "timestep": lambda v: scene(timestep=v).timestep,
    "orientation": lambda v: scene().state(orientation=[[v, 0, 0, 0]]).position[0, 0],
    "relaxation": lambda v: sp.SolverOptions(relaxation=v).relaxation,
    "gradient_relaxation": lambda v: sp.SolverOptions(gradient_relaxation=v).relaxation,
}


@pytest.mark.parametrize("name", WHILE_DIFFERENTIATED)
@pytest.mark.parametrize("by", [jax.grad, jax.jacfwd, lambda f: jax.grad(jax.grad(f))])
def test_values_are_seen_while_they_are_differentiated(name, by):
    make = by(WHILE_DIFFERENTIATED[name])
    make(1.0)
    with pytest.raises(ValueError, match=name):
        make(-2.0)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_an_orientation_that_is_not_finite_is_for_the_step_to_report(number):
    turns = np.array([[number, 0, 0, 0]])
    check_state(scene(), dataclasses.replace(scene().state(), orientation=turns))
    with pytest.raises(ValueError, match="orientation: must have norm 1"):
        check_state(scene(), dataclasses.replace(scene().state(), orientation=np.ones((1, 4))))


def test_states_show_their_numbers():
    assert "velocity=" in repr(scene().state())


def test_scenes_show_a_line_for_each_body_and_fixture():
    floor = sp.HalfSpace((0, 0, 1), 0)
    scene = sp.Scene(
        [sp.Body("ball", sp.Sphere(0.5), mass=2.0)], [floor, (floor, (0, 0, 2.5))], friction=0.3
    )
    shape, place = "HalfSpace(normal=[0., 0., 1.], offset=0.)", "orientation=[1., 0., 0., 0.]"
    assert repr(scene).splitlines() == [
        "Scene(",
        "    bodies=(",
        "        Body('ball', [Sphere], mass=2.0),",
        "    ),",
        "    environment=(",
        f"        Fixture({shape}, position=[0., 0., 0.], {place}),",
        f"        Fixture({shape}, position=[0. , 0. , 2.5], {place}),",
        "    ),",
        "    timestep=0.01,",
        "    friction=0.3,",
        "    gravity=[ 0.  ,  0.  , -9.81],",
        ")",
    ]


@pytest.mark.parametrize("leaf", [None, True, jax.ShapeDtypeStruct((3,), float)])
def test_scenes_of_placeholders_can_be_shown(leaf):
    bundle = sp.scenes.SHAPES["bundle"]()
    changed = jax.tree.map(lambda _: leaf, scene(bodies=[body(shapes=bundle)]))
    assert "Body('box', [Box" in repr(changed)
