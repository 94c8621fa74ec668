"""A third opinion: collisions against two conic solvers and coal, steps against eq. 20."""

import functools
from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from stepping import stepped, thrown

import silico_py as sp
from silico_py import reference
from silico_py.reference.collision import solvers
from silico_py.reference.geometry import inner_radius, reach
from silico_py.reference.report import Condition, worst
from silico_py.reference.sampling import KINDS, PAIRS
from silico_py.solver.compilation import UNOPTIMIZED

UPRIGHT = (1.0, 0.0, 0.0, 0.0)
# Each pair costs seconds to compile, so here every kind of shape occurs once or twice; all
# pairs are in benchmarks/collision_accuracy.py.
COVER = [
    ("half_space", "minkowski_sum"),
    ("box", "polytope"),
    ("box", "cone"),
    ("padded_polytope", "ellipsoid"),
    ("sphere", "cylinder"),
    ("ellipsoid", "capsule"),
    ("cone", "minkowski_sum"),
]
# Fourth-order central difference: offsets and weights.
STENCIL = {-2: 1 / 12, -1: -2 / 3, 1: 2 / 3, 2: -1 / 12}


def test_every_kind_is_covered():
    assert {kind for pair in COVER for kind in pair} == set(KINDS)


def samples(kinds):
    """Apart, touching, overlapping, slender; the last ones face to face."""
    rng = np.random.default_rng(0)
    place = functools.partial(reference.random_pair, *kinds, rng)
    smooth = [
        place(alpha=2.5),
        place(alpha=1.0),
        place(alpha=0.3),
        place(alpha=1.0, slender=True),
        place(alpha=1.5, slender=True),
    ]
    return smooth, [place(alpha=1.0, aligned=True), place(alpha=0.8, aligned=True, slender=True)]


def moved(pair, offset):
    position, orientation = pair.pose_a
    return pair._replace(pose_a=(position + offset, orientation))


def stencil_step(pair):
    shapes = [shape for shape in (pair.shape_a, pair.shape_b) if shape.scaled]
    return 1e-3 * min(inner_radius(shape) for shape in shapes)


@functools.cache
def compiled():
    """One program a kind of pair."""
    return jax.jit(jax.vmap(lambda pair: sp.collide(*pair)), compiler_options=UNOPTIMIZED)


@pytest.fixture(scope="module", params=COVER, ids="-".join)
def collided(request):
    """Pairs, what `sp.collide` finds, and central differences of its alpha (smooth pairs only)."""
    smooth, flat = samples(request.param)
    shifted = [
        moved(pair, k * stencil_step(pair) * axis)
        for pair in smooth
        for axis in np.eye(3)
        for k in STENCIL
    ]
    stacked = jax.tree.map(lambda *rows: np.stack(rows), *smooth, *flat, *shifted)
    found = jax.tree.map(np.asarray, compiled()(stacked))
    assert found.converged.all()
    count = len(smooth) + len(flat)
    alphas = found.alpha[count:].reshape(len(smooth), 3, len(STENCIL))
    gradients = alphas @ np.array(list(STENCIL.values()))
    gradients /= np.linalg.norm(gradients, axis=-1, keepdims=True)
    return smooth + flat, jax.tree.map(lambda v: v[:count], found), gradients


@pytest.mark.parametrize("solver", solvers())
def test_alpha_is_that_of_the_conic_solvers(collided, solver):
    pairs, found, _ = collided
    expected = [reference.collide(*pair, solver=solver) for pair in pairs]
    np.testing.assert_allclose([e.gap for e in expected], 0, atol=1e-8)
    np.testing.assert_allclose(found.alpha, [e.alpha for e in expected], rtol=0, atol=1e-6)


def test_normal_proves_alpha(collided):
    """In closed form, whatever the solvers say: no smaller scaling can touch."""
    pairs, found, _ = collided
    proved = [
        reference.certified_bound(*pair, normal)
        for pair, normal in zip(pairs, found.normal, strict=True)
    ]
    np.testing.assert_allclose(found.alpha, proved, rtol=0, atol=1e-8)


def test_point_lies_in_both_scaled_shapes(collided):
    pairs, found, _ = collided
    for pair, alpha, point in zip(pairs, found.alpha, found.point, strict=True):
        for shape, pose in (pair[:2], pair[2:]):
            if shape.scaled:
                assert reference.gauge(shape, pose, point) < alpha + 1e-8
            else:
                normal = np.array(sp.rotation.rotate(np.array(pose[1]), shape.normal))
                assert normal @ (point - pose[0]) < float(shape.offset) + 1e-8


def test_normal_is_the_gradient_of_alpha(collided):
    pairs, found, gradients = collided
    smooth = len(gradients)
    np.testing.assert_allclose(found.normal[:smooth], gradients, rtol=0, atol=1e-5)
    # And that of the conic duals, found by another code.
    duals = [reference.collide(*pair).normal for pair in pairs[:smooth]]
    np.testing.assert_allclose(found.normal[:smooth], duals, rtol=0, atol=1e-4)


@pytest.mark.parametrize("solver", solvers())
def test_reference_against_closed_forms(solver):
    ball, small = sp.Sphere(0.3), sp.Sphere(0.2)
    found = reference.collide(
        ball, ((1.0, 2.0, 2.0), UPRIGHT), small, (np.zeros(3), UPRIGHT), solver
    )
    np.testing.assert_allclose(found.alpha, 3 / 0.5, atol=1e-8)
    np.testing.assert_allclose(found.normal, np.array([1, 2, 2]) / 3, atol=1e-5)
    np.testing.assert_allclose(found.point, 0.4 * np.array([1, 2, 2]), atol=1e-5)
    floor = sp.HalfSpace((0.0, 0.0, 1.0), 0.1)
    box = sp.Box((0.1, 0.2, 0.4))
    found = reference.collide(box, ((0.0, 0.0, 0.7), UPRIGHT), floor, (np.zeros(3), UPRIGHT))
    np.testing.assert_allclose(found.alpha, 0.6 / 0.4, atol=1e-8)
    np.testing.assert_allclose(found.normal, [0, 0, 1], atol=1e-8)


def test_reference_certifies_itself_on_every_pair():
    rng = np.random.default_rng(1)
    for kinds in PAIRS:
        found = reference.collide(*reference.random_pair(*kinds, rng, alpha=0.7))
        np.testing.assert_allclose(found.alpha, 0.7, atol=1e-7, err_msg=str(kinds))
        assert abs(found.gap) < 1e-8, kinds


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "half_space"])
@pytest.mark.parametrize("sizes", [(0.4, 0.3, 0.1), (0.1, 0.2, 0.4)], ids=["flat", "long"])
def test_a_ball_in_a_shape_reaches_no_further_than_it(kind, sizes):
    """The largest about its centre has its least reach; of a sum there may be a larger one."""
    shape = KINDS[kind](np.array(sizes))
    d = np.random.default_rng(0).normal(size=(100_000, 3))
    d = np.concatenate([d, np.eye(3), -np.eye(3)])
    least = reach(shape, d / np.linalg.norm(d, axis=1, keepdims=True)).min()
    assert inner_radius(shape) <= least * (1 + 1e-12)
    assert inner_radius(shape) > (0.3 if kind == "minkowski_sum" else 0.98) * least


def test_the_worst_condition_is_the_one_furthest_beyond_its_end():
    fine, close, failed = (Condition(value, -1.0, 2.0) for value in (1.0, -0.9, -1.1))
    nothing_known = Condition(np.nan, -1.0, 2.0)
    assert worst([fine, close]) == close and worst([close, failed, fine]) == failed
    assert worst([failed, nothing_known, fine]) is nothing_known and not nothing_known.ok


@pytest.mark.parametrize("alpha", [0.9, 1.1])
def test_coal_sees_overlap_where_alpha_is_below_one(alpha):
    pytest.importorskip("coal")
    rng = np.random.default_rng(2)
    for kinds in PAIRS:
        pair = reference.random_pair(*kinds, rng, alpha=alpha)
        assert reference.separation_sign(*pair) == np.sign(alpha - 1), (kinds, pair)


def test_coal_takes_sums_with_large_flat_faces():
    """Whose meshes have vertices with very many neighbours."""
    pytest.importorskip("coal")
    ends = sp.MinkowskiSum(sp.Cylinder(0.1, 0.2), sp.Cylinder(0.2, 0.1))  # 0.15 m to either side
    for height, sign in ((0.24, -1), (0.26, 1)):
        poses = ((0.0, 0.0, 0.0), UPRIGHT), ((0.0, 0.0, height), UPRIGHT)
        assert reference.separation_sign(ends, poses[0], sp.Sphere(0.1), poses[1]) == sign


def standing_sum() -> tuple[sp.Scene, sp.State]:
    """A Minkowski sum on a face, of which more is taken off alpha than is sure."""
    scene, _ = sp.scenes.drop("minkowski_sum")
    return scene, scene.state(position=[[0.0, 0.0, 0.15]])


def pebble() -> tuple[sp.Scene, sp.State]:
    """A small box over one of a hundred times its size, whose growth with alpha is a tenth."""
    scene, _ = sp.scenes.stack(2)
    rock, block = scene.bodies
    half = (0.0025, 0.0025, 0.0025)
    block = sp.Body(block.name, sp.Box(half), mass=1.0)
    scene = replace(scene, bodies=[rock, block])
    return scene, scene.state(position=[[0.0, 0.0, 0.25], [0.05, 0.02, 0.508]])


SCENES = {
    "standing sum": (standing_sum, 1),
    # At 10 Hz the box lands, tips and slides within these steps.
    "drop": (lambda: sp.scenes.drop("box", timestep=0.1), 6),
    "stack": (lambda: sp.scenes.stack(2, offset=0.1), 2),
    "pebble": (pebble, 2),
    "box and cone": (lambda: thrown(speed=5.0, seed=1), 4),
    "planar_push": (sp.scenes.planar_push, 4),
}
RUN = [pytest.param(name, marks=[pytest.mark.slow] * (name == "planar_push")) for name in SCENES]


@pytest.mark.parametrize("relaxation", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("name", RUN)
def test_steps_satisfy_every_condition(name, relaxation):
    make, steps = SCENES[name]
    scene, state = make()
    touched = False
    for _ in range(steps):
        following, info = stepped(scene, state, relaxation=relaxation)
        report = reference.check_step(
            scene, state, None, following, info, sp.SolverOptions(relaxation=relaxation)
        )
        assert report.ok, report
        touched |= bool((np.linalg.norm(info.contacts.force, axis=-1) > 1).any())
        state = following
    assert touched


def test_control_and_a_body_frame_away_from_the_centre_of_mass():
    shape = sp.Box((0.1, 0.2, 0.3))
    body = sp.Body("brick", [(shape, (0.3, -0.1, 0.2), UPRIGHT)], mass=2.0)
    scene = sp.Scene([body])
    state = scene.state(velocity=[[1.0, 0.0, 2.0]], angular_velocity=[[3.0, -1.0, 2.0]])
    control = np.array([[1.0, -2.0, 3.0, 0.5, 0.4, -0.3]])
    following, info = stepped(scene, state, control)
    assert reference.check_step(scene, state, control, following, info).ok
    assert not reference.check_step(scene, state, None, following, info).ok


def test_springs_and_quasi_dynamic_bodies():
    stiffness = [1e3, 0.0, 1e9, 20.0, 0.0, 5.0]
    body = sp.Body("hand", sp.Box((0.1, 0.2, 0.3)), 2.0, stiffness=stiffness, quasi_dynamic=True)
    free = sp.Scene([sp.Body("hand", sp.Box((0.1, 0.2, 0.3)), 2.0)])
    scene = sp.Scene([body])
    state = scene.state(velocity=[[1.0, 0.5, 2.0]], angular_velocity=[[3.0, -1.0, 2.0]])
    control = np.array([[0.01, -2.0, 0.02, 0.1, 0.4, -0.2]])
    following, info = stepped(scene, state, control)
    report = reference.check_step(scene, state, control, following, info)
    assert report.ok, report
    assert reference.check_step(free, state, control, following, info).failed


@pytest.fixture(scope="module")
def sliding():
    """One step of a box that slides on the floor on its face."""
    scene, _ = sp.scenes.drop("box", timestep=0.1)
    state = scene.state(position=[[0.0, 0.0, 0.25]], velocity=[[1.0, 0.3, 0.0]])
    following, info = stepped(scene, state)
    assert float(following.velocity[0, 0]) > 0.5
    return scene, state, following, info


def turned(orientation):
    small = np.array([1.0, 0.0, 0.0, 1e-3])
    return sp.rotation.multiply(orientation, small / np.linalg.norm(small))


ACROSS, UP = np.array([0.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0])
TILTED = np.array([0.0, np.sin(0.01), np.cos(0.01)])
FRICTIONLESS, PULLED = np.array([0.0, 0.0, 1.0]), np.array([1.0, 1.0, -1.0])

# What is changed, how, and the conditions that must notice.
MUTATIONS = {
    "position": ("state", "position", lambda v: v + 1e-4, {"pose"}),
    "orientation": ("state", "orientation", turned, {"pose"}),
    "velocity": ("state", "velocity", lambda v: v + 1e-4, {"pose", "momentum"}),
    "spin": ("state", "angular_velocity", lambda v: v + 1e-4, {"pose", "angular_momentum"}),
    "alpha": ("contacts", "alpha", lambda v: v + 1e-4, {"exact", "certificate", "gap"}),
    "alpha below": ("contacts", "alpha", lambda v: v - 1e-4, {"exact", "certificate", "point"}),
    "point": ("contacts", "point", lambda v: v + 1e-4 * UP, {"point", "angular_momentum"}),
    "normal": ("contacts", "normal", lambda v: 0 * v + TILTED, {"normal"}),
    "force": ("contacts", "force", lambda v: 1.001 * v, {"momentum"}),
    "pulling": ("contacts", "force", lambda v: PULLED * v, {"momentum", "normal_force"}),
    "frictionless": (
        "contacts",
        "force",
        lambda v: FRICTIONLESS * v,
        {"momentum", "angular_momentum", "dissipation"},
    ),
    "too rough": ("contacts", "force", lambda v: v * (UP + 2 * (1 - UP)), {"friction_cone"}),
    "askew": ("contacts", "force", lambda v: v + 0.1 * ACROSS, {"direction"}),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_what_is_wrong_is_noticed(sliding, mutation):
    scene, state, following, info = sliding
    assert reference.check_step(scene, state, None, following, info).ok
    part, field, change, noticed = MUTATIONS[mutation]
    if part == "state":
        values = {**vars(following), field: change(getattr(following, field))}
        following = sp.State(**values)
    else:
        contacts = info.contacts._replace(**{field: change(getattr(info.contacts, field))})
        info = info._replace(contacts=contacts)
    report = reference.check_step(scene, state, None, following, info)
    assert noticed <= set(report.failed), report
    assert "FAILED" in repr(report)


@pytest.mark.parametrize("size", [1e-5, 1e4])
@pytest.mark.parametrize("solver", solvers())
def test_reference_at_every_size(solver, size):
    """The scaling of the same pair of another size is the same."""
    cone, box = sp.Cone(0.3 * size, 0.7 * size), sp.Box(size * np.array([0.1, 0.2, 0.3]))
    q = Rotation.random(random_state=1).as_quat(scalar_first=True)
    for place in ([0.5, 0.3, 0.2], [0.1, -0.3, 0.1]):
        pose, other = (size * np.array(place), q), (np.zeros(3), UPRIGHT)
        found = reference.collide(cone, pose, box, other, solver)
        assert abs(found.gap) < 1e-8
        assert abs(found.alpha - float(sp.collide(cone, pose, box, other).alpha)) < 1e-7
        assert reference.gauge(cone, pose, found.point, solver) < found.alpha + 1e-7


@pytest.mark.parametrize("field", ["position", "orientation", "velocity", "angular_velocity"])
def test_states_that_are_not_finite_are_refused(sliding, field):
    scene, state, following, info = sliding
    for value in (np.nan, np.inf):
        spoilt = replace(following, **{field: value * getattr(following, field)})
        with pytest.raises(ValueError, match=f"next_state: {field}: has NaN"):
            reference.check_step(scene, state, None, spoilt, info)
    nowhere = info._replace(contacts=info.contacts._replace(point=np.nan * info.contacts.point))
    with pytest.raises(ValueError, match="contact point"):
        reference.check_step(scene, state, None, following, nowhere)


def test_bad_input():
    pose = (np.zeros(3), UPRIGHT)
    ball, floor = sp.Sphere(0.1), sp.HalfSpace((0.0, 0.0, 1.0), 0.0)
    with pytest.raises(ValueError, match="solver"):
        reference.collide(ball, pose, ball, pose, solver="SIMPLEX")
    with pytest.raises(ValueError, match="half-spaces"):
        reference.collide(floor, pose, floor, pose)
    with pytest.raises(ValueError, match="shape_b"):
        reference.collide(ball, pose, sp.Bundle([(ball, *pose)]), pose)
    with pytest.raises(ValueError, match="half-space"):
        reference.gauge(floor, pose, np.zeros(3))
    with pytest.raises(ValueError, match="shape: expected a convex primitive"):
        reference.gauge(sp.Bundle([(ball, *pose)]), pose, np.zeros(3))


def test_options_that_say_less_of_contacts_are_refused(sliding):
    scene, state, following, info = sliding
    softer = sp.SolverOptions(method="bilevel", collision_relaxation=1e-3)
    for options, match in (
        (sp.SolverOptions(max_contacts=1), "max_contacts"),
        (softer, "collision"),
    ):
        with pytest.raises(ValueError, match=match):
            reference.check_step(scene, state, None, following, info, options)


def test_batches_are_refused(sliding):
    scene, state, following, info = sliding
    batch = jax.tree.map(lambda v: np.stack([v, v]), (state, following, info))
    with pytest.raises(ValueError, match="state: position must have shape"):
        reference.check_step(scene, batch[0], None, following, info)
    with pytest.raises(ValueError, match="info: expected the 1 contacts"):
        reference.check_step(scene, state, None, following, batch[2])
    with pytest.raises(ValueError, match="control"):
        reference.check_step(scene, state, np.zeros(6), following, info)
