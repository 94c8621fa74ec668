"""What is shown of a simulation, against numbers worked out here; the live window; the page;
pictures."""

import base64
import configparser
import io
import json
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import jax
import matplotlib.image
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from mpl_toolkits.mplot3d import art3d
from PIL import Image
from stepping import rolled

import silico_py as sp
from silico_py.viewing import Page, Replay, plotting, rendering
from silico_py.viewing.meshes import split_creases
from silico_py.viewing.replay import body_color

ROOT = Path(__file__).resolve().parents[1]
STEPS = 12
HALF = np.array([0.2, 0.15, 0.1])
RADIUS = 0.25
BALL, CRATE = 0, 1
BALL_ON_FLOOR, CRATE_ON_FLOOR, CRATE_ON_POST = 1, 3, 4
OFFSET, TURN = np.array([0.1, -0.05, 0.02]), np.array([0.5, 0.5, 0.5, 0.5])
SLOPE = np.array([np.cos(0.1), np.sin(0.1), 0.0, 0.0])
POST = np.array([1.0, 0.5, 0.3])
FACES = np.array([[s * (axis == k) for k in range(3)] for axis in range(3) for s in (-1.0, 1.0)])


def rotate(q, v):
    """q v q*, written out in numpy."""
    w, u = q[..., :1], q[..., 1:]
    return v * (w**2 - np.sum(u * u, -1, keepdims=True)) + 2 * (
        np.sum(u * v, -1, keepdims=True) * u + w * np.cross(u, v)
    )


def conjugate(q):
    return q * np.array([1.0, -1.0, -1.0, -1.0])


def make_scene():
    """A ball and a crate whose box is placed off its origin, a slope, and a post."""
    ball = sp.Body("ball", sp.Sphere(RADIUS), mass=1.0)
    crate = sp.Body("crate", [(sp.Box(HALF), OFFSET, TURN)], mass=2.0)
    slope = (sp.HalfSpace((0.0, 0.0, 1.0), -0.5), (0.3, 0.2, 0.1), SLOPE)
    post = (sp.Box((0.1, 0.1, 0.3)), POST, (1.0, 0.0, 0.0, 0.0))
    return sp.Scene([ball, crate], [slope, post], timestep=0.05)


def poses():
    """After each step: the ball flies along x, the crate turns about its diagonal."""
    time = np.linspace(0.0, 1.0, STEPS)
    position = np.zeros((STEPS, 2, 3))
    position[:, BALL, 0] = 2 * time
    position[:, BALL, 2] = 0.5
    position[:, CRATE] = np.array([-0.5, 0.4, 0.3])
    orientation = np.zeros((STEPS, 2, 4))
    orientation[:, BALL, 0] = 1
    orientation[:, CRATE, 0] = np.cos(time)
    orientation[:, CRATE, 1:] = np.sin(time)[:, None] / np.sqrt(3)
    return position, orientation


def make_trajectory(scene, position, orientation, **contacts):
    """A trajectory with these poses: velocities are zero, every step converged, no force."""
    steps, pairs = len(position), len(scene.pairs)
    still = np.zeros_like(position)
    found = sp.ContactInfo(*(np.zeros(steps) for _ in sp.ContactInfo._fields))
    no_contact = {"alpha": np.ones((steps, pairs))}
    no_contact |= {name: np.zeros((steps, pairs, 3)) for name in ("point", "force")}
    found = found._replace(**{**no_contact, **contacts})
    info = sp.Info(*(np.zeros(steps) for _ in sp.Info._fields))
    info = info._replace(converged=np.ones(steps, bool), contacts=found)
    return sp.Trajectory(sp.State(position, orientation, still, still), info)


def with_state(trajectory, **fields):
    values = {**vars(trajectory.state), **fields}
    return trajectory._replace(state=sp.State(**values))


def with_info(trajectory, **fields):
    return trajectory._replace(info=trajectory.info._replace(**fields))


def with_contacts(trajectory, **fields):
    return with_info(trajectory, contacts=trajectory.info.contacts._replace(**fields))


@pytest.fixture(scope="module")
def scene():
    return make_scene()


@pytest.fixture(scope="module")
def trajectory(scene):
    """Forces: the ball's 10 N at every step; the crate's 4 N and 1000 N in step 6 alone."""
    force, point = np.zeros((STEPS, 5, 3)), np.zeros((STEPS, 5, 3))
    force[:, BALL_ON_FLOOR] = [6.0, 0.0, 8.0]
    force[5, CRATE_ON_FLOOR] = [0.0, 4.0, 0.0]
    force[5, CRATE_ON_POST] = [-1000.0, 0.0, 0.0]
    point[:, BALL_ON_FLOOR] = [0.1, 0.2, 0.3]
    point[:, CRATE_ON_POST] = [0.4, 0.5, 0.6]
    alpha = np.full((STEPS, 5), 1.5)
    alpha[:, [BALL_ON_FLOOR, CRATE_ON_FLOOR]] = 1.001
    alpha[:, CRATE_ON_POST] = np.linspace(2.0, 0.9, STEPS)
    return make_trajectory(scene, *poses(), alpha=alpha, point=point, force=force)


@pytest.fixture(scope="module")
def replay(scene, trajectory):
    return Replay.of(scene, trajectory)


def world_vertices(replay, piece, frame):
    local = piece.reference + piece.vertices
    if piece.body is None:
        return local
    turned = rotate(replay.orientation[frame, piece.body], local)
    return turned + replay.position[frame, piece.body]


# ---------------------------------------------------------------- data


def test_contacts_are_those_of_the_scene(scene, replay):
    kinds = {
        BALL_ON_FLOOR: (BALL, -1),
        CRATE_ON_FLOOR: (CRATE, -1),
        CRATE_ON_POST: (CRATE, 2),
    }
    assert replay.contacts.names == scene.pair_names and len(scene.pairs) == 5
    for contact, (body, second) in kinds.items():
        assert replay.pieces[replay.contacts.first[contact]].body == body
        assert replay.contacts.second[contact] == second
    assert replay.pieces[2].body is None


def test_first_frame_is_the_start():
    """Of a body that turns about a centre of mass away from its origin, and is hit."""
    body = sp.Body("far", [(sp.Box((0.1, 0.1, 0.1)), (0.3, 0.0, 0.1), TURN)], mass=2.0)
    scene = sp.Scene([body], [sp.scenes.floor()], timestep=0.02)
    turned = np.array([0.1, 0.7, -0.5, 0.5]) / np.linalg.norm([0.1, 0.7, -0.5, 0.5])
    center = rotate(turned, np.array([0.3, 0.0, 0.1]))
    state = scene.state(
        position=[[0.0, 0.0, 0.18 - center[2]]],
        orientation=[turned],
        velocity=[[1.0, 2.0, -8.0]],
        angular_velocity=[[4.0, -3.0, 2.0]],
    )
    replay = Replay.of(scene, rolled(scene, state, 2))
    assert replay.frames == 3 and replay.time(0) == 0.0
    np.testing.assert_allclose(replay.position[0], state.position, atol=1e-12)
    np.testing.assert_allclose(replay.orientation[0], state.orientation, atol=1e-12)
    assert not len(replay.touching(0)) and len(replay.touching(1))


@pytest.mark.parametrize("frame", [1, 8])
def test_box_mesh_has_the_corners_of_the_box(replay, frame):
    position, orientation = poses()
    corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * HALF
    in_body = rotate(TURN, corners) + OFFSET
    expected = rotate(orientation[frame - 1, CRATE], in_body) + position[frame - 1, CRATE]
    (piece,) = (p for p in replay.pieces if p.body == CRATE)
    found = world_vertices(replay, piece, frame)
    distance = np.linalg.norm(found[:, None] - expected[None], axis=-1)
    np.testing.assert_allclose(distance.min(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(distance.min(axis=1), 0, atol=1e-12)


def test_sphere_mesh_lies_on_the_sphere_about_its_position(replay):
    points = world_vertices(replay, replay.pieces[BALL], 4)
    distance = np.linalg.norm(points - poses()[0][3, BALL], axis=-1)
    np.testing.assert_allclose(distance, RADIUS, atol=1e-12)


def test_scaling_the_mesh_by_alpha_is_scaling_about_the_shapes_reference():
    off_center = np.array([[0.3, 0.3, 0], [-0.3, 0.3, 0], [0, -0.3, 0], [0.05, 0, 0.5]])
    shape = sp.Polytope.from_vertices(off_center)  # the origin lies on a face
    scene = sp.Scene([sp.Body("tent", [(shape, OFFSET, TURN)], mass=1.0)])
    still = make_trajectory(scene, np.zeros((1, 1, 3)), np.array([[[1.0, 0, 0, 0]]]))
    (piece,) = Replay.of(scene, still).pieces
    scaled = piece.reference + 1.7 * piece.vertices
    gauge = jax.vmap(shape.gauge)(rotate(conjugate(TURN), scaled - OFFSET))
    np.testing.assert_allclose(gauge, 1.7, rtol=1e-9)


def test_plane_is_the_surface_of_the_half_space(replay):
    (plane,) = replay.planes
    shape = sp.HalfSpace((0.0, 0.0, 1.0), -0.5)
    sideways = np.cross(plane.normal, [[1.0, 0.2, 0.3], [0.0, 1.0, 0.5]])
    surface = plane.point + sideways
    for height, inside in ((-1e-9, True), (1e-9, False)):
        local = rotate(conjugate(SLOPE), surface + height * plane.normal - [0.3, 0.2, 0.1])
        assert [bool(shape.contains(point)) for point in local] == [inside, inside]


def test_level_planes_are_ground_and_steep_ones_are_walls():
    wall = sp.HalfSpace((1.0, 0.0, 0.0), -2.0)
    scene = sp.Scene([sp.Body("ball", sp.Sphere(0.1), mass=1.0)], [sp.scenes.floor(), wall])
    still = make_trajectory(scene, np.ones((1, 1, 3)), np.array([[[1.0, 0, 0, 0]]]))
    replay = Replay.of(scene, still)
    assert [replay.is_level(plane) for plane in replay.planes] == [True, False]
    assert replay.plane_extent(replay.planes[0]) > 10 * replay.plane_extent(replay.planes[1])


def test_force_arrows_start_at_the_point_and_are_in_proportion(replay):
    (arrow,) = replay.arrows(1)
    np.testing.assert_allclose(arrow[0], [0.1, 0.2, 0.3])
    np.testing.assert_allclose(arrow[1] - arrow[0], replay.arrow_scale * np.array([6.0, 0.0, 8.0]))
    typical = np.linalg.norm(arrow[1] - arrow[0]) / replay.radius
    assert 0.2 < typical < 0.8  # one impact of 1000 N must not shrink every other arrow
    ball, crate, post = replay.arrows(6)
    lengths = [np.linalg.norm(tip - start) for start, tip in (ball, crate)]
    np.testing.assert_allclose(lengths[0] / lengths[1], 10 / 4)
    np.testing.assert_allclose(post[1] - post[0], [-replay.longest_arrow, 0, 0], atol=1e-12)


def test_forces_too_small_or_not_finite_are_not_drawn(scene, trajectory):
    force = trajectory.info.contacts.force.copy()
    force[:4, BALL_ON_FLOOR] = [[np.nan, 0, 0], [np.inf, 0, 0], [1e-6, 0, 0], [0.05, 0, 0]]
    replay = Replay.of(scene, with_contacts(trajectory, force=force))
    assert [len(replay.arrows(k)) for k in range(6)] == [0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("load", [2.0, 9.81])
@pytest.mark.parametrize("mass", [1e-3, 1e3])
@pytest.mark.parametrize(("timestep", "relaxation"), [(0.01, 1e-6), (0.01, 1e-3), (1e-4, 1e-6)])
def test_a_ball_in_mid_air_has_no_arrow_and_one_that_rests_has_one(
    load, mass, timestep, relaxation
):
    """Under a load [N/kg], alone in its run: the impulse [mass times m/s] times the gap [sizes] is
    the relaxation."""
    scene = sp.Scene([sp.Body("ball", sp.Sphere(0.5), mass=mass)], [sp.scenes.floor()], timestep)
    for gap, arrows in ((relaxation / (load * timestep), 1), (0.8, 0)):
        contact = {
            "alpha": np.full((1, 1), 1 + gap),
            "force": np.array([[[0.0, 0.0, relaxation / gap * mass / timestep]]]),
        }
        position = np.array([[[0.0, 0.0, 0.5 * (1 + gap)]]])
        one = make_trajectory(scene, position, np.array([[[1.0, 0, 0, 0]]]), **contact)
        assert len(Replay.of(scene, one).arrows(1)) == arrows


def test_frames_of_a_body_too_far_away_to_have_a_size(tmp_path):
    scene = sp.Scene([sp.Body("ball", sp.Sphere(0.1), 1.0)])
    states = jax.tree.map(lambda v: np.asarray(v)[None], scene.state([[0.0, 0.0, 1e16]]))
    with pytest.raises(ValueError, match="can be drawn"):
        plotting.frames(scene, states, [0], tmp_path / "far.png")


def test_a_sphere_that_falls_and_never_lands_has_no_arrow():
    scene, state = sp.scenes.drop("sphere")
    replay = Replay.of(scene, rolled(scene, state, 10))
    assert not any(len(replay.arrows(frame)) for frame in range(replay.frames))


@pytest.mark.parametrize(
    ("timestep", "text"), [(0.05, "0.10 s"), (0.005, "0.010 s"), (1e-6, "0.000002 s"), (1, "2 s")]
)
def test_clock_tells_frames_apart(scene, trajectory, timestep, text):
    quick = replace(scene, timestep=timestep)
    replay = Replay.of(quick, trajectory)
    assert replay.time_text(2) == text and replay.time_text(3) != text
    decimals = text.removesuffix(" s").partition(".")[2]
    assert data_of(sp.show(quick, trajectory))["decimals"] == len(decimals)


def test_weight_of_a_resting_ball_is_an_arrow_up_from_the_floor():
    scene, _ = sp.scenes.drop("sphere", timestep=0.02)
    state = scene.state(position=[[0.0, 0.0, 0.25]])
    replay = Replay.of(scene, rolled(scene, state, 3))
    ((start, tip),) = replay.arrows(3)
    np.testing.assert_allclose(start, 0, atol=1e-4)
    np.testing.assert_allclose((tip - start) / replay.arrow_scale, [0, 0, 9.81], atol=1e-3)


def test_box_of_the_motion_holds_every_vertex_of_every_frame(replay):
    moving = [piece for piece in replay.pieces if piece.body is not None]
    points = np.concatenate(
        [world_vertices(replay, p, k) for p in moving for k in range(replay.frames)]
    )
    slack = 1e-9
    assert np.all(np.abs(points - replay.center) <= replay.reach + slack)
    extent = points.max(axis=0) - points.min(axis=0)
    assert np.all(2 * replay.reach <= extent + 2 * 0.5 * extent.max() + slack)


@pytest.mark.parametrize("gravity", [(0, 0, -9.81), (0, -3, 0), (5, 0, 0), (0, 0, 0)])
def test_view_is_from_above(gravity):
    scene = sp.Scene([sp.Body("ball", sp.Sphere(0.1), mass=1.0)], gravity=gravity)
    still = make_trajectory(scene, np.zeros((1, 1, 3)), np.array([[[1.0, 0, 0, 0]]]))
    replay = Replay.of(scene, still)
    np.testing.assert_allclose(np.linalg.norm(replay.view_direction), 1)
    assert 0.2 < replay.view_direction @ replay.up < 0.8
    assert np.asarray(gravity) @ replay.up <= 0


@pytest.mark.parametrize(
    ("shape", "groups"),
    [(sp.Box(HALF), 6), (sp.Sphere(0.3), 1), (sp.Cylinder(0.2, 0.5), 3), (sp.Cone(0.3, 0.5), 2)],
)
def test_creases_split_a_mesh_into_its_smooth_parts(shape, groups):
    vertices, triangles = shape.surface_mesh(32)
    split, again = split_creases(vertices, triangles)
    np.testing.assert_array_equal(split[again], vertices[triangles])
    root = np.arange(len(split))
    for _ in range(len(split)):  # the smallest label reached spreads until nothing changes
        before = root.copy()
        np.minimum.at(root, again, root[again].min(axis=1, keepdims=True))
        if np.array_equal(before, root):
            break
    assert len(np.unique(root)) == groups


# ---------------------------------------------------------------- what went wrong


def test_failed_steps_and_states_that_are_not_finite_are_noted(scene, trajectory):
    converged = np.ones(STEPS, bool)
    converged[3] = False
    status = np.where(converged, sp.Status.CONVERGED, sp.Status.MAX_ITERATIONS)
    position = trajectory.state.position.copy()
    position[8:, CRATE] = np.nan
    velocity = np.zeros((STEPS, 2, 3))
    velocity[10, BALL] = np.inf
    broken = with_state(trajectory, position=position, velocity=velocity)
    replay = Replay.of(scene, with_info(broken, converged=converged, status=status))
    assert sorted(replay.notes) == [4, 9, 10, 11, 12]
    assert sp.Status.MAX_ITERATIONS.message in replay.notes[4] and "step 4" in replay.notes[4]
    assert "crate" in replay.notes[9] and "ball" not in replay.notes[9]
    assert "crate" in replay.notes[11] and "ball" in replay.notes[11]
    np.testing.assert_array_equal(replay.visible[:, CRATE], np.arange(STEPS + 1) < 9)
    assert replay.visible[:, BALL].all()
    assert np.isfinite(replay.center).all() and np.isfinite(replay.reach).all()


def first_only(values):
    return values[:, :1]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda t: t.state, "trajectory: expected what rollout returns"),
        (lambda t: jax.tree.map(lambda v: v[:0], t), "trajectory: has no steps"),
        (lambda t: t._replace(state=jax.tree.map(first_only, t.state)), r"shape \(steps, 2, 3\)"),
        (lambda t: jax.tree.map(lambda v: v[None], t), r"shape \(steps, 2, 3\), got \(1, 12"),
        (lambda t: with_state(t, orientation=np.zeros((STEPS, 2, 3))), "state.orientation"),
        (lambda t: with_state(t, position=np.full((STEPS, 2, 3), np.nan)), "no body has a finite"),
        (lambda t: with_info(t, converged=np.ones(3, bool)), "trajectory.info.converged"),
        (lambda t: with_contacts(t, alpha=np.ones((STEPS, 1))), "info.contacts.alpha"),
        (lambda t: with_contacts(t, point=np.ones((STEPS, 5, 2))), "info.contacts.point"),
    ],
)
def test_what_is_no_trajectory_of_the_scene_is_refused(scene, trajectory, spoil, message):
    with pytest.raises(ValueError, match=message):
        Replay.of(scene, spoil(trajectory))


@pytest.mark.parametrize("distance", [1e6, 1e30, 1e300])
@pytest.mark.parametrize("first", [0, 7])
def test_a_body_that_is_far_off_does_not_enlarge_the_view(scene, trajectory, distance, first):
    position = trajectory.state.position.copy()
    position[first:, CRATE, 1] = distance
    replay = Replay.of(scene, with_state(trajectory, position=position))
    assert replay.radius <= Replay.of(scene, trajectory).radius
    gone = np.array([first == 0, *(np.arange(STEPS) >= first)])
    np.testing.assert_array_equal(replay.visible[:, CRATE], ~gone)
    assert replay.visible[:, BALL].all()


# ---------------------------------------------------------------- the page as text


def data_of(page):
    """What the page plays, read as strictly as a browser reads it."""

    def refuse(word):
        raise AssertionError(f"{word} in the page")

    text = page.html.split('id="replay">')[1].split("</script>")[0]
    return json.loads(text, parse_constant=refuse)


def singles(text):
    return np.frombuffer(base64.b64decode(text), np.float32)


@pytest.mark.parametrize("huge", [1e100, 1e300, np.inf, np.nan])
def test_page_holds_finite_numbers_of_what_is_drawn(scene, trajectory, huge):
    contacts = trajectory.info.contacts
    force, point = contacts.force.copy(), contacts.point.copy()
    force[3, BALL_ON_FLOOR] = point[7, BALL_ON_FLOOR] = huge
    position = trajectory.state.position.copy()
    position[9, BALL] = huge
    wild = with_contacts(with_state(trajectory, position=position), force=force, point=point)
    data = data_of(sp.show(scene, wild))
    assert np.isfinite(singles(data["touching"]["force"])).all()
    assert np.isfinite(singles(data["touching"]["point"])).all()
    seen = np.frombuffer(base64.b64decode(data["visible"]), np.uint8).reshape(-1, 2).astype(bool)
    assert np.isfinite(singles(data["position"]).reshape(-1, 2, 3)[seen]).all()
    assert not seen[10, BALL] and seen.sum() == seen.size - 1


def test_page_places_bodies_and_contacts_far_from_the_origin_of_the_world(scene, trajectory):
    away = np.array([1e6, -2e6, 3e6])
    fixtures = [replace(f, position=f.position + away) for f in scene.environment]
    position = trajectory.state.position + away
    point = trajectory.info.contacts.point + away
    moved = with_contacts(with_state(trajectory, position=position), point=point)
    near = data_of(sp.show(scene, trajectory))
    far = data_of(sp.show(replace(scene, environment=tuple(fixtures)), moved))
    np.testing.assert_allclose(np.subtract(far["center"], near["center"]), away, rtol=1e-15)
    drawn = singles(far["position"]).reshape(-1, 2, 3)[1:] + np.array(far["center"])
    np.testing.assert_allclose(drawn, position, rtol=0, atol=1e-6)
    for read in (lambda d: d["position"], lambda d: d["touching"]["point"]):
        np.testing.assert_allclose(singles(read(far)), singles(read(near)), atol=1e-6)
    for kind, entry in (("planes", "point"), ("pieces", "reference")):
        for one, other in zip(far[kind], near[kind], strict=True):
            np.testing.assert_allclose(one[entry], other[entry], atol=1e-6)


def test_page_names_no_other_file_and_survives_hostile_names(tmp_path):
    name = '</script><b>"&'
    scene = sp.Scene([sp.Body(name, sp.Sphere(0.1), mass=1.0)])
    still = make_trajectory(scene, np.zeros((1, 1, 3)), np.array([[[1.0, 0, 0, 0]]]))
    path = sp.save_html(scene, still, tmp_path / "new" / "a<b.html")
    text = path.read_text(encoding="utf-8")
    assert text.count("</script>") == 3
    assert "<title>a&lt;b</title>" in text
    outside = text[: text.index("<script")]
    assert "src=" not in outside and "href=" not in outside and "url(" not in outside
    assert "MIT License" in text


def test_notebook_frame_holds_the_page(scene, trajectory):
    page = sp.show(scene, trajectory, height=321)
    assert isinstance(page, Page)
    frame = page._repr_html_()
    assert frame.startswith("<iframe srcdoc=") and 'height="321"' in frame


def test_files_of_the_page_are_packaged():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    patterns = setup["options.package_data"]["silico_py.viewing"].split()
    room = ROOT / "silico_py" / "viewing"
    files = [f.relative_to(room).as_posix() for f in (room / "web").rglob("*") if f.is_file()]
    assert files
    # setuptools' * does not match a slash; fnmatch's does.
    for file in files:
        assert any(fnmatch(file, p) and file.count("/") == p.count("/") for p in patterns), file


# ---------------------------------------------------------------- pictures


BLUE, ORANGE = (np.array(to_rgb(body_color(body))) for body in (0, 1))


def states_at(position, orientation=(1.0, 0, 0, 0)):
    """Bodies at rest, at the same orientation."""
    position = np.array(position, float)
    turned = np.broadcast_to(orientation, (*position.shape[:2], 4))
    return sp.State(position, turned, np.zeros_like(position), np.zeros_like(position))


def picture(scene, states, indices, folder):
    """(height, width, 3) in 0 ... 1."""
    plotting.frames(scene, states, indices, folder / "frames.png")
    return matplotlib.image.imread(folder / "frames.png")[..., :3]


def pixels(image, color):
    """How many have the colour, more or less bright."""
    hue = image / np.maximum(image.max(axis=-1, keepdims=True), 1e-9)
    return np.sum(np.abs(hue - np.divide(color, max(color))).max(axis=-1) < 0.04)


@pytest.mark.parametrize(
    ("times", "labels"),
    [
        ([0.01, 0.2, 1.5], ["0.01 s", "0.20 s", "1.50 s"]),
        (np.float32(0.01) * np.array([1, 20, 150]), ["0.01 s", "0.20 s", "1.50 s"]),
        ([0.005, 0.01, 0.015], ["5 ms", "10 ms", "15 ms"]),
        ([0.005, 0.01, 1.5], ["0.005 s", "0.010 s", "1.500 s"]),
        ([1e-6, 2e-6, 1.2e-5], ["1 us", "2 us", "12 us"]),
        ([0.5, 5.0, 100.0], ["0.5 s", "5.0 s", "100.0 s"]),
        ([2e-12], ["0.002 ns"]),
    ],
)
def test_labels_tell_the_times_of_frames_apart(times, labels):
    assert plotting.time_labels(np.array(times)) == labels


@pytest.mark.parametrize("steps", [1, 2, 5, 6, 40])
def test_each_state_is_told_of_once(steps):
    states = states_at(np.zeros((steps, 1, 3)))
    velocity = np.zeros((steps, 1, 3))
    velocity[steps // 2] = 100.0  # all that moves moves in one step
    for moving in (states, replace(states, velocity=velocity)):
        indices = plotting.telling_indices(moving, 6)
        assert len(set(indices)) == len(indices) == min(steps, 6)
        assert indices == sorted(indices) and (indices[0], indices[-1]) == (0, steps - 1)


def test_states_that_are_not_finite_are_not_told_of():
    velocity = np.ones((40, 2, 3))
    states = replace(states_at(np.zeros((40, 2, 3))), velocity=velocity)
    states.position[10:, 0] = velocity[10:, 0] = np.nan
    states.position[30:] = velocity[30:] = np.nan
    indices = plotting.telling_indices(states, 6)
    assert (indices[0], indices[-1]) == (0, 29) and np.diff(indices).max() < 8
    assert plotting.telling_indices(replace(states, position=np.nan * velocity), 6) == []


@pytest.mark.parametrize(("speed", "count"), [(1.0, 10), (1.5, 7), (0.1, 20)])
def test_a_motion_is_a_picture_that_moves_at_its_speed(speed, count, tmp_path):
    """Of 20 steps of 0.02 s, with 25 frames a second, or one a state if there are fewer."""
    scene = sp.Scene([sp.Body("ball", sp.Sphere(0.2), mass=1.0)], timestep=0.02)
    states = states_at(np.linspace(0, 1, 20)[:, None, None] * [1.0, 0, 0])
    drawn, path = [], tmp_path / "new" / "ball.gif"
    plotting.animate(scene, states, path, speed=speed, on_frame=lambda *told: drawn.append(told))
    assert drawn == [(k + 1, count) for k in range(count)]
    places, seconds = [], 0.0
    with Image.open(path) as motion:
        assert motion.n_frames == count
        for k in range(count):
            motion.seek(k)
            seconds += motion.info["duration"] / 1000
            ball = np.asarray(motion.convert("L")) < 250
            places.append(np.mean(ball.nonzero()[1]) / ball.shape[1])
    assert seconds == pytest.approx(20 * 0.02 / speed, abs=0.02)
    assert np.all(np.diff(places) > 0) and places[0] < 0.3 and places[-1] > 0.7


def test_bad_arguments_of_a_picture_that_moves(tmp_path):
    scene, states = sp.scenes.drop()[0], states_at(np.zeros((2, 1, 3)))
    with pytest.raises(ValueError, match=r"path: must end in one of \.gif.*'a.mp4'"):
        plotting.animate(scene, states, tmp_path / "a.mp4")
    for name, value in (("speed", 0.0), ("fps", -1.0), ("fps", 60), ("pixels", 0)):
        with pytest.raises(ValueError, match=name):
            plotting.animate(scene, states, tmp_path / "a.gif", **{name: value})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", [20, 99, -1, 1.5])
def test_a_state_that_there_is_not_is_not_drawn(scene, tmp_path, wrong):
    with pytest.raises(ValueError, match=rf"indices: must be in 0 ... 19, got {wrong}"):
        plotting.frames(scene, states_at(np.zeros((20, 2, 3))), [3, wrong], tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()


def test_bodies_that_are_not_finite_are_left_out_of_pictures(tmp_path):
    bodies = [sp.Body(name, sp.Sphere(0.1), mass=1.0) for name in "ab"]
    scene, position = sp.Scene(bodies), np.array([[[0.0, 0, 0], [0.5, 0, 0]]] * 2)
    position[:, 0] = [[np.nan, 0, 0], [1e300, 0, 0]]
    image = picture(scene, states_at(position), [0, 1], tmp_path)
    assert pixels(image, BLUE) == 0 and pixels(image, ORANGE) > 0.2 * image[..., 0].size
    with pytest.raises(ValueError, match="states: no body has a pose that can be drawn"):
        picture(scene, states_at(np.full((1, 2, 3), np.nan)), [0], tmp_path)


@pytest.mark.filterwarnings("error")
def test_pictures_do_not_warn_of_memory_that_nobody_has_set(tmp_path, monkeypatch):
    """Of triangles among polygons of more corners."""

    class Worst:
        def __getattr__(self, name):
            return getattr(np, name)

        def empty(self, shape, *args, **kwargs):
            return np.full(shape, 1e308)

    monkeypatch.setattr(art3d, "np", Worst())
    scene = sp.Scene([sp.Body("cone", sp.Cone(0.2, 0.3), mass=1.0)])
    assert pixels(picture(scene, states_at([[[0.0, 0, 0]]]), [0], tmp_path), BLUE)


@pytest.mark.parametrize(("height", "share"), [(0.25, 0.1), (0.9, 0.1), (90.0, 0.0)])
def test_the_floor_is_drawn_where_it_is_near(tmp_path, height, share):
    scene = sp.Scene([sp.Body("ball", sp.Sphere(0.25), mass=1.0)], [sp.scenes.floor()])
    image = picture(scene, states_at([[[0.0, 0.0, height]]]), [0], tmp_path)
    floor = np.abs(image - rendering.FLOOR_COLOR).max(axis=-1) < 0.02
    assert floor.mean() > share if share else not floor.any()
    if share:  # its four corners are seen: the ball leaves its outline free
        rows, columns = floor.nonzero()
        ends = [rows == rows.max(), columns == columns.min(), columns == columns.max()]
        assert all(np.sum(end) < 0.05 * max(image.shape) for end in ends)


def test_up_in_pictures_is_against_gravity(tmp_path):
    crate, half = sp.Body("crate", sp.Box(HALF), mass=1.0), np.sqrt(0.5)
    place = np.array([0.1, 0.3, 0.4])
    upright = sp.Scene([crate], [sp.scenes.floor()])
    # The same world turned by a quarter about x: z to y.
    lying = sp.Scene([crate], [sp.HalfSpace((0.0, 1.0, 0.0), 0.0)], gravity=(0.0, -9.81, 0.0))
    back = np.array([half, -half, 0.0, 0.0])
    expected = picture(upright, states_at([[place]]), [0], tmp_path)
    found = picture(lying, states_at([[rotate(back, place)]], back), [0], tmp_path)
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_bodies_are_seen_from_where_they_do_not_hide_each_other(tmp_path):
    bodies = [sp.Body("crate", sp.Box((0.5, 0.5, 0.5)), mass=1.0)]
    bodies += [sp.Body("ball", sp.Sphere(0.2), mass=1.0)]
    for angle in np.radians([0, 60, 122, 200, 300]):  # 122: behind the crate, as usually seen
        ball = [np.cos(angle), np.sin(angle), -0.2]
        image = picture(sp.Scene(bodies), states_at([[[0.0, 0, 0], ball]]), [0], tmp_path)
        assert pixels(image, ORANGE) > 0.03 * pixels(image, BLUE)


# ---------------------------------------------------------------- the live window


def test_importing_the_library_does_not_import_viser():
    code = "import sys, silico_py; assert 'viser' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_without_viser_view_says_how_to_install_it(scene, trajectory, monkeypatch):
    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(ImportError, match=r'pip install "silico-py\[view\]"'):
        sp.view(scene, trajectory, block=False)


@pytest.mark.parametrize("port", [-1, 70_000])
def test_a_port_that_there_is_not(scene, trajectory, port):
    with pytest.raises(ValueError, match="port"):
        sp.view(scene, trajectory, port=port, block=False)


def test_an_address_that_cannot_be_served(scene, trajectory):
    with pytest.raises(ValueError, match=r"host: .*'999\.1\.1\.1'"):
        sp.view(scene, trajectory, host="999.1.1.1", block=False)


def test_words_for_whether_to_wait(scene, trajectory):
    with pytest.raises(ValueError, match="block: must be True or False, got 'no'"):
        sp.view(scene, trajectory, block="no")


def test_a_page_goes_to_a_path(scene, trajectory):
    with pytest.raises(ValueError, match="path: expected a path, got NoneType"):
        sp.save_html(scene, trajectory, None)


@pytest.mark.parametrize("wrong", [{"title": None}, {"height": "480"}])
def test_a_page_needs_a_title_and_a_height(scene, trajectory, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        sp.show(scene, trajectory, **wrong)


def test_a_slash_in_a_name_makes_no_child():
    """To viser `/bodies/robot/arm` hangs on `/bodies/robot`."""
    pytest.importorskip("viser", reason="the live window needs viser")
    bodies = [sp.Body(name, sp.Sphere(0.1), mass=1.0) for name in ("robot", "robot/arm")]
    position = np.array([[[5.0, 0.0, 0.0], [0.0, 7.0, 0.0]]])
    scene, upright = sp.Scene(bodies), np.tile([1.0, 0, 0, 0], (1, 2, 1))
    viewer = sp.view(scene, make_trajectory(scene, position, upright), block=False)
    arm = viewer.server.scene.get_handle_by_name("/bodies/robot%2Farm")
    viewer.close()
    np.testing.assert_allclose(arm.position, position[0, 1])


@pytest.fixture(scope="module")
def viewer(scene, trajectory):
    pytest.importorskip("viser", reason="the live window needs viser")
    position = trajectory.state.position.copy()
    position[9, CRATE] = np.nan
    viewer = sp.view(scene, with_state(trajectory, position=position), block=False)
    yield viewer
    viewer.close()


def test_viewer_serves_a_page(viewer):
    from urllib.request import urlopen

    with urlopen(viewer.url, timeout=10) as answer:
        assert b"<html" in answer.read()


def test_viewer_moves_the_bodies(viewer):
    position, orientation = poses()
    node = viewer.server.scene.get_handle_by_name
    for frame in (3, 8):
        viewer.show(frame)
        for index, name in ((BALL, "ball"), (CRATE, "crate")):
            np.testing.assert_allclose(node(f"/bodies/{name}").position, position[frame - 1, index])
            np.testing.assert_allclose(node(f"/bodies/{name}").wxyz, orientation[frame - 1, index])
    viewer.show(10)
    assert node("/bodies/ball").visible and not node("/bodies/crate").visible


def test_viewer_shows_contacts_and_environment(viewer, replay):
    node = viewer.server.scene.get_handle_by_name
    assert node("/environment/plane0") is not None
    np.testing.assert_allclose(node("/environment/fixture0").position, POST)
    viewer.show(6)
    arrows = replay.arrows(6) - node("/contacts").position
    np.testing.assert_allclose(node("/contacts/forces").points, arrows, atol=1e-6)
    np.testing.assert_allclose(node("/contacts/points").points, arrows[:, 0], atol=1e-6)
    viewer.show(0)
    assert not node("/contacts/forces").visible


def test_viewer_places_contacts_far_from_the_origin_of_the_world(scene, trajectory):
    pytest.importorskip("viser", reason="the live window needs viser")
    away = np.array([1e6, -2e6, 3e6])
    moved = with_state(trajectory, position=trajectory.state.position + away)
    moved = with_contacts(moved, point=trajectory.info.contacts.point + away)
    viewer = sp.view(scene, moved, block=False)
    viewer.show(1)
    frame, points = (
        viewer.server.scene.get_handle_by_name(f"/contacts{part}") for part in ("", "/points")
    )
    viewer.close()
    found = np.asarray(points.points, float) + frame.position
    np.testing.assert_allclose(found, [away + [0.1, 0.2, 0.3]], rtol=0, atol=1e-6)


def test_viewer_scales_the_sets_of_touching_pairs(viewer, trajectory):
    viewer.show(6)
    viewer._scaled.value = True
    node = viewer.server.scene.get_handle_by_name
    crate, post = (node(f"/scaled/contact{CRATE_ON_POST}/piece{k}") for k in (1, 2))
    alpha = trajectory.info.contacts.alpha[5, CRATE_ON_POST]
    np.testing.assert_allclose([crate.scale, post.scale], alpha)
    position, orientation = poses()
    middle = position[5, CRATE] + rotate(orientation[5, CRATE], OFFSET)  # after step 6
    np.testing.assert_allclose(crate.position, middle, atol=1e-12)
    viewer.show(7)
    assert not crate.visible
    viewer._scaled.value = False


def test_viewer_looks_from_above_on_planes_where_they_are(viewer, replay):
    camera, plane = viewer.server.initial_camera, replay.planes[0]
    way = (camera.position - replay.center) / np.linalg.norm(camera.position - replay.center)
    np.testing.assert_allclose(way, replay.view_direction, atol=1e-9)
    node = viewer.server.scene.get_handle_by_name("/environment/plane0")
    np.testing.assert_allclose(plane.normal @ (node.position - plane.point), 0, atol=1e-9)
    np.testing.assert_allclose(rotate(np.asarray(node.wxyz), np.array([0, 0, 1.0])), plane.normal)


def test_viewer_hides_what_is_not_wanted(viewer):
    node = viewer.server.scene.get_handle_by_name
    boxes, parts = (viewer._points, viewer._forces), ("points", "forces")
    viewer.show(6)
    for box, hidden in zip(boxes, parts, strict=True):
        box.value = False
        assert [part for part in parts if not node(f"/contacts/{part}").visible] == [hidden]
        box.value = True
    crate = node("/bodies/crate/piece0")
    viewer._glass.value = False
    assert crate.opacity is None
    viewer._glass.value = True
    assert 0 < crate.opacity < 1


def test_viewer_says_what_went_wrong(viewer):
    assert {mark.value for mark in viewer._slider._marks} == {10}
    viewer.show(10)
    assert "state not finite: crate" in viewer._banner.content
    viewer.show(9)
    assert viewer._banner.content == "0.45 s"


def test_viewer_plays_from_the_start_after_the_end_and_stops_where_it_is_taken(viewer):
    viewer.show(STEPS)
    viewer._speed.value = "0.1x"  # half a second for a frame
    viewer.play()
    assert viewer.frame == 0 and viewer._button.label == "Pause"
    viewer._slider.value = 7
    assert viewer.frame == 7 and viewer._button.label == "Play"


def test_viewer_plays_to_the_end_and_refuses_frames_beyond(viewer):
    viewer.show(0)
    viewer._speed.value = "5x"
    viewer.play()
    deadline = time.monotonic() + 20
    while viewer.frame < STEPS and time.monotonic() < deadline:
        time.sleep(0.05)
    assert viewer.frame == STEPS
    with pytest.raises(ValueError, match="frame"):
        viewer.show(STEPS + 1)


# ---------------------------------------------------------------- the page in a browser

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--use-angle=swiftshader",  # WebGL without a graphics card
    "--enable-unsafe-swiftshader",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # no network
    "--window-size=900,700",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver", reason="driving a browser needs selenium")
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if not (program and driver):
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    profile = tmp_path_factory.mktemp("profile")
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield browser
    browser.quit()


@pytest.fixture(scope="module")
def opened(browser, scene, trajectory, tmp_path_factory):
    """The page of the trajectory, with one failed step and one without the crate."""
    position = trajectory.state.position.copy()
    position[9, CRATE] = np.nan
    converged = np.arange(STEPS) != 3
    broken = with_info(with_state(trajectory, position=position), converged=converged)
    path = sp.save_html(scene, broken, tmp_path_factory.mktemp("page") / "page.html")
    browser.get(path.as_uri())
    return browser


@pytest.fixture
def page(opened):
    """The page at its first frame; it must not complain, nor load anything."""
    run(opened, "silico.show(0)")
    yield opened
    severe = [entry for entry in opened.get_log("browser") if entry["level"] == "SEVERE"]
    assert not severe
    assert run(opened, "performance.getEntriesByType('resource').length") == 0


def run(browser, expression):
    return browser.execute_script(f"return {expression}")


def screenshot(browser):
    """The window as (height, width, 3) in 0 ... 1, when it has been drawn."""
    browser.execute_async_script(
        "requestAnimationFrame(() => requestAnimationFrame(arguments[arguments.length - 1]))"
    )
    return matplotlib.image.imread(io.BytesIO(browser.get_screenshot_as_png()))[..., :3]


def blue(image):
    """Where the ball is seen: its colour is the only strong blue above the controls."""
    scenery = image[60:-90]
    return (scenery[..., 2] - scenery[..., 0] > 0.25).nonzero()


def test_page_draws_the_ball_where_it_is(page):
    start = blue(screenshot(page))
    run(page, f"silico.show({STEPS})")
    end = blue(screenshot(page))
    assert min(len(start[0]), len(end[0])) > 200
    # +x points to the right of the first view.
    assert np.mean(end[1]) > np.mean(start[1]) + 50


def test_scrubber_moves_the_bodies(page):
    from selenium.webdriver.common.action_chains import ActionChains

    position, orientation = poses()
    scrubber = page.find_element("id", "scrubber")
    ActionChains(page).move_to_element_with_offset(
        scrubber, int(0.2 * scrubber.size["width"]), 0
    ).click().perform()
    frame = run(page, "silico.frame")
    assert STEPS // 2 < frame < STEPS
    for body in (BALL, CRATE):
        drawn = run(page, f"silico.body({body})")
        np.testing.assert_allclose(drawn["position"], position[frame - 1, body], atol=1e-6)
        np.testing.assert_allclose(drawn["orientation"], orientation[frame - 1, body], atol=1e-6)


def test_page_draws_force_arrows(page, replay):
    assert run(page, "silico.arrows()") == []  # at the start nothing has acted yet
    run(page, "silico.show(6)")
    np.testing.assert_allclose(run(page, "silico.arrows()"), replay.arrows(6), atol=1e-5)
    page.find_element("id", "forces").click()
    assert run(page, "silico.arrows()") == []
    page.find_element("id", "forces").click()


def test_page_scales_sets_by_alpha(page, trajectory):
    run(page, "silico.show(6)")
    assert run(page, "silico.scaledSets()") == []
    page.find_element("id", "scaled").click()
    alpha = trajectory.info.contacts.alpha[5]
    found = [(entry["piece"], entry["alpha"]) for entry in run(page, "silico.scaledSets()")]
    expected = [(0, alpha[BALL_ON_FLOOR]), (1, alpha[CRATE_ON_FLOOR])]
    expected += [(1, alpha[CRATE_ON_POST]), (2, alpha[CRATE_ON_POST])]
    np.testing.assert_allclose(sorted(found), sorted(expected), rtol=1e-6)
    page.find_element("id", "scaled").click()


def test_page_says_loudly_what_went_wrong(page):
    banner = page.find_element("id", "banner")
    assert not banner.is_displayed()
    run(page, "silico.show(4)")
    assert "step 4 did not converge" in banner.text
    run(page, "silico.show(10)")
    assert "not finite: crate" in banner.text
    assert [run(page, f"silico.body({k}).visible") for k in (BALL, CRATE)] == [True, False]
    assert page.find_element("id", "failures").text == f"2 of {STEPS} steps failed"


def test_page_plays_to_the_end(page):
    page.execute_script("document.getElementById('speed').value = '5'")
    page.find_element("id", "play").click()
    deadline = time.monotonic() + 30
    while run(page, "silico.frame") < STEPS and time.monotonic() < deadline:
        time.sleep(0.05)
    assert run(page, "silico.frame") == STEPS


def test_page_works_in_the_frame_of_a_notebook(browser, scene, trajectory, tmp_path):
    notebook = tmp_path / "notebook.html"
    frame = sp.show(scene, trajectory)._repr_html_()
    notebook.write_text(f"<!doctype html><meta charset=utf-8>{frame}", encoding="utf-8")
    browser.get(notebook.as_uri())
    browser.switch_to.frame(0)
    try:
        assert run(browser, "silico.frames") == STEPS + 1
        assert len(blue(screenshot(browser))[0]) > 100
    finally:
        browser.switch_to.default_content()


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e6])
def test_outlines_of_boxes_have_their_corners(size):
    half = size * HALF
    corners = {
        tuple(np.round(corner / size, 6))
        for face in rendering._faces(sp.Box(half))
        for corner in face
    }
    signs = (-1.0, 1.0)
    expected = {
        (x * HALF[0], y * HALF[1], z * HALF[2]) for x in signs for y in signs for z in signs
    }
    assert corners == expected
