"""Models in and out, against MuJoCo itself."""

import dataclasses
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy.spatial import ConvexHull
from scipy.spatial.transform import Rotation
from shapes import PYRAMID
from stepping import rolled

import silico_py as sp
from silico_py.models.hull import hull

mujoco = pytest.importorskip("mujoco")
trimesh = pytest.importorskip("trimesh")

HERE = Path(__file__).parent / "models"
URDF = HERE / "toy_description" / "urdf" / "floating.urdf"
READABLE = ["every_geom", "welded", "exclude", "slide"]
READY = ["stack", "jenga", "peg_in_hole", "bundle_drop", "heap", "planar_push", "collision"]
SCENES = [*(f"drop:{shape}" for shape in sp.scenes.SHAPES), *READY]


def reference(path):
    """MuJoCo's model, and its data at the keyframe `home`."""
    model = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(model)
    if "home" in [model.key(k).name for k in range(model.nkey)]:
        mujoco.mj_resetDataKeyframe(model, data, model.key("home").id)
    mujoco.mj_forward(model, data)
    return model, data


def floating_reference():
    """MuJoCo's reading of the URDF, let loose; all inertias are explicit, so shapes may differ."""
    text = re.sub("<mesh .*?/>", '<sphere radius="1"/>', URDF.read_text())
    spec = mujoco.MjSpec.from_string(text)
    spec.body("base").add_freejoint()
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return model, data


def ready(name):
    kind, _, shape = name.partition(":")
    return sp.scenes.drop(shape) if shape else getattr(sp.scenes, kind)()


def rotations(quaternions):
    return Rotation.from_quat(np.array(quaternions), scalar_first=True).as_matrix()


def cross(v):
    return np.array([[0, -v[2], v[1]], [v[2], 0, -v[0]], [-v[1], v[0], 0]])


def mass_matrix(body, orientation):
    """6 x 6 for the velocity of the frame's origin (world) and the angular one (body)."""
    mass, center = float(body.mass), np.array(body.center_of_mass)
    arm = -mass * rotations(orientation) @ cross(center)
    about_origin = np.array(body.inertia) + mass * cross(center) @ cross(center).T
    return np.block([[mass * np.eye(3), arm], [arm.T, about_origin]])


def assert_same_bodies(model, data, scene, state):
    """Mass, centre of mass, inertia, pose and velocity of every free body."""
    matrix = np.zeros((model.nv, model.nv))
    for column, direction in zip(matrix, np.eye(model.nv), strict=True):
        mujoco.mj_mulM(model, data, column, direction)
    assert 6 * len(scene.bodies) == model.nv
    for k, body in enumerate(scene.bodies):
        dofs = int(model.body(body.name).dofadr[0]) + np.arange(6)
        ours = mass_matrix(body, state.orientation[k])
        theirs = matrix[np.ix_(dofs, dofs)]
        np.testing.assert_allclose(ours, theirs, atol=1e-6 * np.abs(theirs).max())
        np.testing.assert_allclose(ours[3:, 3:], theirs[3:, 3:], rtol=1e-6, atol=1e-9)
        pose = data.body(body.name)
        np.testing.assert_allclose(state.position[k], pose.xpos, rtol=1e-6, atol=1e-12)
        turned = rotations(state.orientation[k])
        np.testing.assert_allclose(turned, pose.xmat.reshape(3, 3), atol=1e-9)
        velocity = np.concatenate([state.velocity[k], state.angular_velocity[k]])
        np.testing.assert_allclose(velocity, data.qvel[dofs], atol=1e-12)


def pieces_in_world(scene, state):
    """(shape, rotation matrix, position) of every piece, bodies first."""
    for k, body in enumerate(scene.bodies):
        frame, origin = rotations(state.orientation[k]), np.array(state.position[k])
        for shape, position, orientation in body.pieces:
            yield shape, frame @ rotations(orientation), origin + frame @ np.array(position)
    for fixture in scene.environment:
        yield fixture.shape, rotations(fixture.orientation), np.array(fixture.position)


def geom_corners(model, data, geom):
    """World vertices of a mesh geom."""
    mesh = model.mesh(model.geom_dataid[geom])
    start, count = int(mesh.vertadr[0]), int(mesh.vertnum[0])
    local = model.mesh_vert[start : start + count]
    return local @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom]


def fixed_last(model):
    """Geoms that may touch, those of moving bodies first, as `load_model` orders them."""
    solid = np.flatnonzero(model.geom_contype | model.geom_conaffinity)
    root = model.body_rootid[model.geom_bodyid[solid]]
    fixed = model.body_weldid[model.geom_bodyid[solid]] == 0
    moving = solid[~fixed][np.argsort(root[~fixed], kind="stable")]
    return [int(g) for g in [*moving, *solid[fixed]]]


@pytest.mark.parametrize("name", READABLE)
def test_bodies_are_those_of_mujoco(name):
    path = HERE / f"{name}.xml"
    model, data = reference(path)
    scene, state = sp.load_model(path)
    assert_same_bodies(model, data, scene, state)
    assert float(scene.timestep) == model.opt.timestep
    np.testing.assert_array_equal(scene.gravity, model.opt.gravity)


@pytest.mark.parametrize("name", READABLE)
def test_every_geom_is_where_mujoco_has_it(name):
    path = HERE / f"{name}.xml"
    model, data = reference(path)
    pieces = list(pieces_in_world(*sp.load_model(path)))
    geoms = fixed_last(model)
    assert len(pieces) == len(geoms)
    for (shape, turned, position), geom in zip(pieces, geoms, strict=True):
        if isinstance(shape, sp.Polytope):
            corners = geom_corners(model, data, geom)
            outside = (corners - position) @ turned @ np.array(shape.A).T - np.array(shape.b)
            np.testing.assert_allclose(outside.max(axis=1), 0.0, atol=1e-6)
            assert len(shape.vertices) == len(corners)
        else:
            np.testing.assert_allclose(position, data.geom_xpos[geom], atol=1e-9)
            np.testing.assert_allclose(turned, data.geom_xmat[geom].reshape(3, 3), atol=1e-9)


def test_sizes_follow_from_mass_and_density():
    """Each body has one geom of 700 kg/m^3, so MuJoCo's masses tell the volumes."""
    path = HERE / "every_geom.xml"
    model, _ = reference(path)
    scene, _ = sp.load_model(path)
    kinds = [type(body.pieces[0][0]).__name__ for body in scene.bodies]
    assert kinds == ["Sphere", "Capsule", "Cylinder", "Ellipsoid", "Box", "Polytope"]
    for body in scene.bodies:
        ((shape, _, _),) = body.pieces
        volume = float(shape.mass_properties().volume)
        np.testing.assert_allclose(700 * volume, model.body(body.name).mass[0], rtol=1e-6)


def test_pictures_are_left_out_and_friction_is_read():
    scene, _ = sp.load_model(HERE / "every_geom.xml")
    assert [type(f.shape).__name__ for f in scene.environment] == ["HalfSpace", "Box"]
    np.testing.assert_allclose(scene.friction, 0.6)


def test_time_step_and_gravity_can_differ_from_the_numbers_in_the_file():
    text = one_body(around='<option timestep="0.001"><flag gravity="disable"/></option>')
    scene, _ = sp.load_model(text, timestep=0.02)
    np.testing.assert_array_equal(scene.gravity, np.zeros(3))
    assert float(scene.timestep) == 0.02


def test_keyframes():
    path = HERE / "welded.xml"
    _, home = sp.load_model(path)
    _, away = sp.load_model(path, keyframe="away")
    np.testing.assert_allclose(home.position[1], [0.1, 0.2, 1.3])
    np.testing.assert_allclose(home.velocity[1], [0.3, -0.1, 0.2])
    np.testing.assert_allclose(away.position[1], [5.0, 0.0, 1.0])
    with pytest.raises(ValueError, match=r"keyframe: .*'home'.*not 'nowhere'"):
        sp.load_model(path, keyframe="nowhere")
    body = '<body pos="0 0 1"><freejoint/><geom size="1"/></body>'
    other = '<keyframe><key name="away" qpos="0 0 9 1 0 0 0"/></keyframe>'
    _, state = sp.load_model(f"<mujoco><worldbody>{body}</worldbody>{other}</mujoco>")
    np.testing.assert_array_equal(state.position, [[0, 0, 1]])  # no home: the reference pose


def test_urdf_with_a_floating_root():
    with pytest.warns(sp.ModelWarning, match=r"<gazebo> base"):
        scene, state = sp.load_model(URDF)
    model, data = floating_reference()
    assert_same_bodies(model, data, scene, state)
    (tetrahedron, knob) = (shape for shape, _, _ in scene.bodies[0].pieces)
    np.testing.assert_allclose(tetrahedron.mass_properties().volume, 0.2**3 / 6, rtol=1e-6)
    np.testing.assert_allclose(knob.length, 0.1)


def test_extensions_inside_a_link_are_named():
    inside = "<collision><surface/><geometry><sphere radius='1'/></geometry></collision>"
    text = f"<robot name='r'><link name='b'><contact/>{inside}</link></robot>"
    with pytest.warns(sp.ModelWarning, match=r"<contact> \(of link 'b'\)\n *<surface> \(of"):
        sp.load_model(text)


def test_meshes_of_one_name_in_two_folders_are_told_apart(tmp_path):
    links, weld = "", '<joint name="w" type="fixed"><parent link="a"/><child link="b"/></joint>'
    for name, side in [("a", 1.0), ("b", 2.0)]:
        (tmp_path / name).mkdir()
        trimesh.creation.box((side, 1.0, 1.0)).export(tmp_path / name / "part.stl")
        mesh = f'<geometry><mesh filename="{name}/part.stl"/></geometry>'
        links += f'<link name="{name}"><collision>{mesh}</collision></link>'
    (tmp_path / "two.urdf").write_text(f'<robot name="two">{links}{weld}</robot>')
    scene, _ = sp.load_model(tmp_path / "two.urdf")
    volumes = [float(shape.mass_properties().volume) for shape, _, _ in scene.bodies[0].pieces]
    np.testing.assert_allclose(sorted(volumes), [1.0, 2.0], rtol=1e-6)


def test_a_mesh_may_be_stretched_and_mirrored(tmp_path):
    """Its corners are those of the file times the scale, moved by the origin of the collision."""
    trimesh.convex.convex_hull(PYRAMID).export(tmp_path / "part.stl")
    turn, place = Rotation.from_euler("xyz", [0.3, -0.5, 1.2]), np.array([0.1, 0.2, -0.4])
    scale = np.array([1.5, 0.7, -2.0])
    origin = '<origin xyz="0.1 0.2 -0.4" rpy="0.3 -0.5 1.2"/>'
    mesh = f'{origin}<geometry><mesh filename="part.stl" scale="1.5 0.7 -2"/></geometry>'
    text = f'<robot name="r"><link name="b"><collision>{mesh}</collision></link></robot>'
    (tmp_path / "r.urdf").write_text(text)
    ((shape, found, at),) = pieces_in_world(*sp.load_model(tmp_path / "r.urdf"))
    corners, expected = shape.vertices @ found.T + at, turn.apply(PYRAMID * scale) + place
    apart = np.linalg.norm(corners[:, None] - expected, axis=-1)
    np.testing.assert_allclose(apart.min(axis=0), 0.0, atol=1e-6)
    assert len(corners) == len(expected)


@pytest.mark.parametrize(
    ("place", "address", "compiler"),
    [
        ("pkg", "package://pkg/part.stl", ""),
        ("robot/assets", "part.stl", '<mujoco><compiler meshdir="assets"/></mujoco>'),
        ("robot", "part.stl", '<mujoco><compiler discardvisual="false"/></mujoco>'),
    ],
    ids=["a package beside the folder", "meshdir", "pictures that are not there"],
)
def test_where_meshes_of_a_urdf_are(place, address, compiler, tmp_path):
    for folder in ("robot", place):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    trimesh.creation.box((1.0, 2.0, 3.0)).export(tmp_path / place / "part.stl")
    picture = '<visual><geometry><mesh filename="none.dae"/></geometry></visual>'
    mesh = f'<collision><geometry><mesh filename="{address}"/></geometry></collision>'
    text = f'<robot name="r">{compiler}<link name="b">{picture}{mesh}</link></robot>'
    (tmp_path / "robot" / "r.urdf").write_text(text)
    scene, _ = sp.load_model(tmp_path / "robot" / "r.urdf")
    np.testing.assert_allclose(scene.bodies[0].shapes.mass_properties().volume, 6.0, rtol=1e-6)


def test_a_file_of_another_name_finds_its_meshes(tmp_path):
    (tmp_path / "parts").mkdir()
    trimesh.creation.box((1.0, 2.0, 3.0)).export(tmp_path / "parts" / "part.stl")
    text = """<mujoco><compiler meshdir="parts"/><asset><mesh name="m" file="part.stl"/></asset>
    <worldbody><body><freejoint/><geom type="mesh" mesh="m"/></body></worldbody></mujoco>"""
    (tmp_path / "one.mjcf").write_text(text)
    scene, _ = sp.load_model(tmp_path / "one.mjcf")
    np.testing.assert_allclose(scene.bodies[0].shapes.mass_properties().volume, 6.0, rtol=1e-6)


@pytest.mark.parametrize("name", ["one.xml", "one.mjcf", "ONE.XML"])
def test_what_a_file_includes_lies_beside_it(name, tmp_path, monkeypatch):
    """Not in the working directory, where a file of that name may be."""
    body = "<body name='{}' pos='0 0 {}'><freejoint/><geom size='.1'/></body>"
    for folder, names in (("model", "ab"), ("elsewhere", "cd")):
        (tmp_path / folder / "sub").mkdir(parents=True)
        inner, outer = (body.format(name, k) for k, name in enumerate(names))
        outer = f"<mujocoinclude>{outer}<include file='inner.xml'/></mujocoinclude>"
        (tmp_path / folder / "sub" / "outer.xml").write_text("\ufeff" + outer, encoding="utf-8")
        text = f"<mujocoinclude>{inner}</mujocoinclude>"
        (tmp_path / folder / "inner.xml").write_text(text)
    text = "<mujoco><worldbody><include file='sub/outer.xml'/></worldbody></mujoco>"
    (tmp_path / "model" / name).write_text(text)
    monkeypatch.chdir(tmp_path / "elsewhere")
    scene, _ = sp.load_model(tmp_path / "model" / name)
    assert {body.name for body in scene.bodies} == {"a", "b"}


@pytest.mark.parametrize("name", ["one.xml", "one.mjcf"])
def test_what_a_file_attaches_lies_beside_it(name, tmp_path):
    (tmp_path / "sub").mkdir()
    part = '<worldbody><body name="b"><geom size="1"/></body></worldbody>'
    (tmp_path / "sub" / "part.xml").write_text(f'<mujoco model="part">{part}</mujoco>')
    body = '<body><freejoint/><geom size="1"/><attach model="part" body="b" prefix="p"/></body>'
    asset = '<asset><model name="part" file="sub/part.xml"/></asset>'
    (tmp_path / name).write_text(f"<mujoco>{asset}<worldbody>{body}</worldbody></mujoco>")
    scene, _ = sp.load_model(tmp_path / name)
    assert len(scene.bodies[0].pieces) == 2


@pytest.mark.parametrize("name", ["one.xml", "one.mjcf"])
def test_a_missing_included_file_is_named(name, tmp_path):
    text = "<mujoco><worldbody><include file='part.xml'/></worldbody></mujoco>"
    (tmp_path / name).write_text(text)
    with pytest.raises(FileNotFoundError, match=r"part\.xml: no such file"):
        sp.load_model(tmp_path / name)


def test_a_body_without_a_name_gets_one_that_no_other_has():
    ball = '<freejoint/><geom size="0.1"/></body>'
    text = f'<body pos="0 0 1">{ball}<body name="body1">{ball}'
    scene, _ = sp.load_model(f"<mujoco><worldbody>{text}</worldbody></mujoco>")
    assert [body.name for body in scene.bodies] == ["body1_", "body1"]


def test_urdf_fixed_to_the_world():
    link = '<link name="{}"><collision><geometry><sphere radius="1"/></geometry></collision></link>'
    weld = '<joint name="w" type="fixed"><parent link="world"/><child link="base"/></joint>'
    text = f'<robot name="r"><link name="world"/>{link.format("base")}{weld}</robot>'
    with pytest.raises(sp.UnsupportedModelError, match="no body has a free joint"):
        sp.load_model(text)


def test_exclusions_by_name_and_by_contact_bits():
    scene, _ = sp.load_model(HERE / "exclude.xml")
    pairs = [("left", "right"), ("left", "ghost"), ("right", "ghost")]
    assert scene.exclude == {frozenset(pair) for pair in pairs}
    assert len(scene.pairs) == 3  # each with the floor


def test_explicit_pairs_give_pictures_a_contact_and_take_no_softness():
    """Geoms without contact bits touch in explicit pairs alone."""
    ball = '<geom name="ball" size="0.1" contype="0" conaffinity="0"/>'
    pair = '<pair name="p" geom1="floor" geom2="ball" friction="0.3 0.3" {}/>'
    text = f"""<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/>
        <body name="a" pos="0 0 1"><freejoint/>{ball}</body>
        <body name="b" pos="0 1 1"><freejoint/><geom size="0.1"/></body></worldbody>
        <contact>{pair}</contact></mujoco>"""
    scene, _ = sp.load_model(text.format(""))
    assert [names_of(scene, pair) for pair in scene.pairs] == [("a", "floor"), ("b", "floor")]
    np.testing.assert_allclose(scene.friction, [0.3, 1.0])
    with pytest.raises(sp.UnsupportedModelError, match=r"<pair> 'p' \(margin"):
        sp.load_model(text.format('margin="0.1"'))
    frictionless = 'friction="0.3 0.3"', 'condim="4" friction="0 0"'
    with pytest.raises(sp.UnsupportedModelError, match=r"<pair> 'p' \(condim 4"):
        sp.load_model(text.format("").replace(*frictionless))
    unequal = 'friction="0.3 0.3"', 'condim="6" friction="1 1 0.1 0.2 0.3"'
    with pytest.raises(sp.UnsupportedModelError, match=r"<pair> 'p' \(rolling friction"):
        sp.load_model(text.format("").replace(*unequal))
    with pytest.warns(sp.ModelWarning, match=r"<pair> 'p' \(solref"):
        sp.load_model(text.format('solref="0.1 1"'))


def names_of(scene, pair):
    """Of both bodies, or of a body and the floor."""
    second = "floor" if pair.body_b is None else scene.bodies[pair.body_b].name
    return scene.bodies[pair.body_a].name, second


@pytest.mark.parametrize("seed", range(20))
def test_contact_filters_agree_with_mujocos_collisions(seed):
    """Balls in one place touch wherever they may; friction too is MuJoCo's own for the pair."""
    rng, condims = np.random.default_rng(seed), [1, 3, 4, 6]

    def bits():
        kind, affinity = rng.integers(0, 3, 2)
        return f'contype="{kind}" conaffinity="{affinity}"'

    def ball(name):
        mu, condim, priority = rng.choice([0.2, 0.5]), rng.choice(condims), rng.integers(0, 2)
        turning = f"{rng.choice([0.01, 0.02])} {rng.choice([0.003, 0.004])}"
        return (
            f'<geom name="{name}" size="1" {bits()} friction="{mu} {turning}" condim="{condim}" '
            f'priority="{priority}"/>'
        )

    def pair(first, second):
        mu, condim = rng.choice([0.1, 0.7]), rng.choice(condims)
        friction = f"{mu} {mu} 0.03 0.002 0.002"
        return f'<pair geom1="{first}" geom2="{second}" friction="{friction}" condim="{condim}"/>'

    free = "".join(f'<body name="{n}"><freejoint/>{ball(n)}</body>' for n in "abc")
    contact = '<exclude body1="a" body2="c"/><exclude body1="world" body2="b"/>'
    ends = list(itertools.combinations(["c", "a", "floor", "b"], 2))
    contact += "".join(pair(*ends[k]) for k in rng.permutation(len(ends))[: seed % 3])
    text = f"""<mujoco><worldbody>{ball("floor")}{free}</worldbody>
        <contact>{contact}</contact></mujoco>"""
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    expected = {
        frozenset(model.geom(g).name for g in c.geom): np.where(
            c.dim >= np.array([3, 4, 6]), c.friction[[0, 2, 3]], 0
        )
        for c in data.contact
    }

    scene, _ = sp.load_model(text)
    names = [frozenset(names_of(scene, pair)) for pair in scene.pairs]
    assert set(names) == set(expected)
    for k, name in enumerate(names):
        np.testing.assert_allclose(coefficients(scene)[k], expected[name], rtol=0, atol=1e-12)


def coefficients(scene):
    """(pairs, 3) of sliding, torsional and rolling friction, as MuJoCo has them."""
    radii = (scene.torsional_radius, scene.rolling_radius)
    arms = [1.0, *(0.0 if radius is None else radius for radius in radii)]
    of_pairs = [np.broadcast_to(arm * scene.friction, len(scene.pairs)) for arm in arms]
    return np.stack(of_pairs, axis=1)


BLOCKED = """<mujoco><worldbody>
  <geom name="floor" type="plane" size="9 9 1"/>
  <body name="shelf"><geom name="plank" type="box" size="1 1 0.1"/></body>
  <body name="ball" pos="0 0 1"><freejoint/><geom size="0.1"/></body>
  <body name="cube" pos="0 2 1"><freejoint/><geom type="box" size="0.1 0.1 0.1"/></body>
</worldbody><contact>{}</contact></mujoco>"""


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        ("world", "ball", [("ball", 1), ("cube", 0), ("cube", 1)]),
        ("ball", "world", [("ball", 1), ("cube", 0), ("cube", 1)]),
        ("shelf", "cube", [("ball", 0), ("ball", 1), ("cube", 0)]),
    ],
)
def test_exclusions_from_the_world_and_from_fixed_bodies(first, second, left):
    text = BLOCKED.format(f'<exclude body1="{first}" body2="{second}"/>')
    scene, _ = sp.load_model(text)
    assert [type(f.shape).__name__ for f in scene.environment] == ["HalfSpace", "Box"]
    fixed = [pair for pair in scene.pairs if pair.body_b is None]
    assert [(scene.bodies[pair.body_a].name, pair.piece_b) for pair in fixed] == left


def test_a_decomposed_fixture_is_excluded_with_all_its_pieces(monkeypatch):
    """A fixed geom that is cut makes several entries of the environment."""
    from silico_py.models import load

    halved = load.solids
    monkeypatch.setattr(
        load, "solids", lambda model, geom, *how: halved(model, geom, *how) * (1 + (geom == 1))
    )
    scene, _ = sp.load_model(BLOCKED.format('<exclude body1="shelf" body2="ball"/>'))
    assert len(scene.environment) == 3
    assert scene.exclude == {frozenset(("ball", 1)), frozenset(("ball", 2))}


def test_everything_unsupported_is_refused_by_name():
    with pytest.raises(sp.UnsupportedModelError) as refused:
        sp.load_model(HERE / "arm.xml")
    found = {(element.tag, element.name) for element in refused.value.elements}
    assert found == {
        ("joint", "'shoulder'"),
        ("joint", "'elbow'"),
        ("joint", "'wrist'"),
        ("tendon", "'cable'"),
        ("equality", "'glue'"),
        ("actuator", "'shoulder servo'"),
        ("actuator", "'winch'"),
    }
    message = str(refused.value)
    assert "arm.xml" in message and "slide of body 'forearm'" in message


def test_what_would_help_includes_what_is_ignored_already():
    with pytest.raises(sp.UnsupportedModelError, match="ignore=") as refused:
        sp.load_model(HERE / "arm.xml", ignore=["joint", "actuator"])
    assert refused.value.ignore == ("joint", "actuator", "tendon", "equality")
    assert str(refused.value).endswith(f"without them: ignore={refused.value.ignore}")


def test_ignored_joints_weld_at_the_start():
    path = HERE / "arm.xml"
    kinds = ("joint", "tendon", "equality", "actuator")
    with pytest.warns(sp.ModelWarning, match="'encoder'"):
        scene, state = sp.load_model(path, ignore=kinds)
    model, data = reference(path)
    assert [body.name for body in scene.bodies] == ["cube"]
    placed = np.array([fixture.position for fixture in scene.environment])
    names = ["floor", "upper", "fore", "hand"]
    np.testing.assert_allclose(placed, [data.geom(n).xpos for n in names], atol=1e-9)
    np.testing.assert_allclose(state.position[0], data.body("cube").xpos)
    np.testing.assert_allclose(scene.bodies[0].mass, model.body("cube").mass[0])


REFUSED = {
    "damping": '<joint type="free" damping="1"/><geom size="1"/>',
    "gravcomp": '<freejoint/><geom size="1"/><body gravcomp="1"><geom size="1"/></body>',
    "margin": '<freejoint/><geom size="1" margin="0.1"/>',
    "condim": '<freejoint/><geom size="1" condim="6" friction="0"/>',
    "contact": '<freejoint/><geom size="1"/><geom size="1" contype="2" conaffinity="2"/>',
    "joint": '<freejoint/><geom size="1"/><body><joint/><geom size="1"/></body>',
}
REFUSED_AROUND = {
    "option": '<option density="1.2"/>',
    "flag": '<option><flag contact="disable"/></option>',
    "mocap": '<worldbody><body mocap="true"><geom size="1"/></body></worldbody>',
    "pair": '<contact><pair geom1="floor" geom2="ball" friction="0.5 0.2"/></contact>',
    "hfield": '<asset><hfield name="h" nrow="2" ncol="2" size="1 1 1 1" elevation="0 1 0 0"/>'
    '</asset><worldbody><geom type="hfield" hfield="h"/></worldbody>',
    "equality": '<equality><weld body1="body"/></equality>',
}


def one_body(inside='<freejoint/><geom name="ball" size="1"/>', around=""):
    floor = '<geom name="floor" type="plane" size="1 1 1" contype="1" conaffinity="1"/>'
    body = f'<body name="body">{inside}</body>'
    return f"<mujoco>{around}<worldbody>{floor}{body}</worldbody></mujoco>"


@pytest.mark.parametrize("kind", [*REFUSED, *REFUSED_AROUND])
def test_each_kind_is_refused_and_can_be_ignored(kind):
    text = one_body(REFUSED[kind]) if kind in REFUSED else one_body(around=REFUSED_AROUND[kind])
    with pytest.raises(sp.UnsupportedModelError) as refused:
        sp.load_model(text)
    assert {element.kind for element in refused.value.elements} == {kind}
    scene, _ = sp.load_model(text, ignore=kind)
    assert [body.name for body in scene.bodies] == ["body"]


FREE = '<joint type="free" {}="1"/><geom size="1"/>'
GRID = '<flexcomp name="f" type="grid" count="2 2 2" spacing="1 1 1" dim="3" mass="1"/>'
TETRAHEDRON = '<asset><mesh name="m" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset>'
SIMILAR = {  # to those above, by the word in the message
    "frictionloss": ("damping", FREE.format("frictionloss"), ""),
    "armature": ("damping", FREE.format("armature"), ""),
    "stiffness": ("damping", FREE.format("stiffness"), ""),
    "viscosity": ("option", None, '<option viscosity="1"/>'),
    "constraint": ("flag", None, '<option><flag constraint="disable"/></option>'),
    "override": ("flag", None, '<option><flag override="enable"/></option>'),
    "adhesion": ("adhesion", '<freejoint/><geom size="1" adhesion="1"/>', ""),
    "surfacevel": ("surfacevel", '<freejoint/><geom size="1" surfacevel="1 0 0"/>', ""),
    "flex": ("flex", None, f"<worldbody>{GRID}</worldbody>"),
    "sdf": ("sdf", '<freejoint/><geom size="1"/><geom type="sdf" mesh="m"/>', TETRAHEDRON),
}


@pytest.mark.filterwarnings("ignore:flex")
@pytest.mark.parametrize("word", SIMILAR)
def test_all_that_a_kind_stands_for_is_refused(word):
    kind, inside, around = SIMILAR[word]
    if word in ("adhesion", "surfacevel") and not hasattr(mujoco.MjModel, f"geom_{word}"):
        pytest.skip("younger than this MuJoCo")
    text = one_body(inside, around) if inside else one_body(around=around)
    with pytest.raises(sp.UnsupportedModelError, match=word) as refused:
        sp.load_model(text)
    assert kind in refused.value.ignore  # its points have joints of their own, if it is a flex


@pytest.mark.parametrize(("version", "counts"), [("3.3.4", True), ("3.10.0", False)])
def test_a_gap_is_refused_where_it_moves_contacts(version, counts, monkeypatch):
    monkeypatch.setattr(mujoco, "__version__", version)
    text = one_body('<freejoint/><geom name="ball" size="1" gap="0.1"/>')
    if not counts:
        sp.load_model(text)
        return
    with pytest.raises(sp.UnsupportedModelError, match=r"'ball' \(gap 0.1"):
        sp.load_model(text)
    sp.load_model(text, ignore="gap")


def test_a_body_that_hangs_asleep_in_the_air_is_refused():
    ball = '<body name="ball" pos="0 0 9" sleep="init"><freejoint/><geom size="1"/></body>'
    option = '<option><flag sleep="enable"/></option>'
    text = f"<mujoco>{option}<worldbody>{ball}</worldbody></mujoco>"
    with pytest.raises(sp.UnsupportedModelError, match=r"'ball' .asleep"):
        sp.load_model(text)
    scene, _ = sp.load_model(text, ignore="sleep")
    assert [body.name for body in scene.bodies] == ["ball"]


def test_a_body_of_pictures_falls_through_the_floor_as_in_mujoco():
    ball = '<geom size="1" contype="0" conaffinity="0" friction="{}"/>'
    inside = f"<freejoint/>{ball.format(0.7)}{ball.format(0.2)}"
    scene, _ = sp.load_model("\ufeff" + one_body(inside))  # with a byte order mark
    assert not scene.environment and not scene.pairs
    np.testing.assert_allclose(scene.bodies[0].mass, 2 * 1000 * 4 / 3 * np.pi)
    np.testing.assert_allclose(scene.friction, 0.7)  # the largest, for whatever is put beside it


@pytest.mark.parametrize("softness", ['solref="0.1 1"', 'solimp="0.8 0.9 0.001"'])
def test_solver_softness_is_warned_of(softness):
    text = one_body(f'<freejoint/><geom name="ball" size="1" {softness}/>')
    with pytest.warns(sp.ModelWarning, match="'ball' .*solref"):
        sp.load_model(text)


def test_files_that_are_no_models_and_no_meshes_are_named(tmp_path):
    for name, load, message in (
        ("robot.xacro", sp.load_model, "expand it to URDF"),
        ("part.teapot", lambda path: sp.load_mesh(path, 1.0), "trimesh cannot read it"),
        ("none.obj", lambda path: sp.load_mesh(path, 1.0), "no triangles"),
    ):
        (tmp_path / name).write_text("# nothing")
        with pytest.raises(ValueError, match=rf"{name}: .*{message}"):
            load(tmp_path / name)


def named(*names):
    return sp.Scene([sp.Body(name, sp.Sphere(radius=0.1), mass=1.0) for name in names])


def save(scene, state=None):
    sp.save_model(scene, state or scene.state(), os.devnull)


BAD = {
    "missing file": (FileNotFoundError, "nowhere.xml", lambda: sp.load_model("nowhere.xml")),
    "missing mesh file": (FileNotFoundError, "no.stl", lambda: sp.load_mesh("no.stl", 1.0)),
    "broken URDF": (ValueError, "broken XML", lambda: sp.load_model("<robot><link></robot>")),
    "broken XML": (ValueError, "MuJoCo cannot compile", lambda: sp.load_model("<mujoco>")),
    "unknown element": (ValueError, "foo", lambda: sp.load_model("<mujoco><foo/></mujoco>")),
    "another format": (ValueError, "sdf", lambda: sp.load_model("<sdf/>")),
    "kind": (ValueError, "ignore: .*joints", lambda: sp.load_model("<mujoco/>", ignore="joints")),
    "nothing moves": (ValueError, "free joint", lambda: sp.load_model("<mujoco/>")),
    "no geom": (
        ValueError,
        "'body' .*no geom",
        lambda: sp.load_model(
            one_body('<freejoint/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>')
        ),
    ),
    "world": (ValueError, "rename", lambda: save(named("world"))),
    "state": (ValueError, r"state: .*\(1, 3\)", lambda: save(named("a"), named("a", "b").state())),
    "empty": (ValueError, "source: expected .* got ''", lambda: sp.load_model("")),
    "model's pieces": (ValueError, "decompose", lambda: sp.load_model("<mujoco/>", decompose="x")),
    "mesh's pieces": (ValueError, "decompose", lambda: sp.load_mesh("no.stl", 1.0, decompose=1)),
    "no mesh": (ValueError, "path: expected a path, got None", lambda: sp.load_mesh(None, 1.0)),
    "no path": (ValueError, "path", lambda: sp.save_model(named("a"), named("a").state(), None)),
    "no source": (ValueError, "source: expected", lambda: sp.load_model(None)),
    "kinds": (ValueError, "ignore: expected", lambda: sp.load_model("<mujoco/>", ignore=None)),
    "counts": (
        ValueError,
        "split_boxes: counts",
        lambda: sp.load_model("<mujoco/>", split_boxes=(2, 2)),
    ),
    "hull": (
        ValueError,
        "max_hull_vertices",
        lambda: sp.load_model("<mujoco/>", max_hull_vertices=3),
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_says_what_is_wrong(case):
    error, words, call = BAD[case]
    with pytest.raises(error, match=words):
        call()


def test_boxes_of_bodies_may_be_split():
    """Those of the environment stay whole, and all else is as it was."""
    text = one_body(
        '<freejoint/><geom type="box" size=".1 .2 .3" pos="1 0 0" euler="0 30 0" friction=".3"/>'
        '<geom size=".1"/><geom type="box" size="1 1 1" pos="9 0 0" euler="10 0 0"/>',
        '<compiler angle="degree"/><default><geom friction=".1"/></default>',
    ).replace("<worldbody>", '<worldbody><geom type="box" size="1 1 1" pos="0 0 -9"/>')
    whole, _ = sp.load_model(text)
    scene, state = sp.load_model(text, split_boxes=(2, 3, 1))
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    assert_same_bodies(model, data, scene, state)
    assert len(scene.environment) == len(whole.environment) == 2
    kinds = [type(shape).__name__ for shape, *_ in scene.bodies[0].pieces]
    assert kinds == [*6 * ["Box"], "Sphere", *6 * ["Box"]]
    expected = np.repeat(np.reshape(whole.friction, (3, 2)), [6, 1, 6], axis=0)
    np.testing.assert_array_equal(np.reshape(scene.friction, (13, 2)), expected)
    points = np.random.default_rng(0).uniform(-0.5, 0.5, (400, 3)) + [1, 0, 0]
    inside = [jax.vmap(s.bodies[0].shapes.contains)(points) for s in (whole, scene)]
    assert 4 < inside[0].sum() < 396
    np.testing.assert_array_equal(*inside)


def test_missing_mesh_of_a_urdf_names_its_address(tmp_path):
    text = URDF.read_text().replace("tetrahedron.stl", "octahedron.stl")
    (tmp_path / "lost.urdf").write_text(text)
    with pytest.raises(FileNotFoundError, match="package://toy_description/meshes/octahedron"):
        sp.load_model(tmp_path / "lost.urdf")


def test_import_leaves_mujoco_alone():
    code = "import silico_py, sys; assert not {'mujoco', 'trimesh', 'coacd'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=HERE.parents[1])


@pytest.mark.parametrize(
    ("library", "call"),
    [
        ("mujoco", lambda: sp.load_model(HERE / "slide.xml")),
        ("trimesh", lambda: sp.load_mesh(HERE / "meshes" / "wedge.obj", mass=1.0)),
    ],
)
def test_a_missing_library_says_what_to_install(library, call, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=rf"{library} is not installed.*silico-py\[models\]"):
        call()


def mujoco_states(model, data, steps):
    """Position (steps, n, 3) and orientation (steps, n, 4) of free bodies after each step."""
    rows = []
    for _ in range(steps):
        mujoco.mj_step(model, data)
        rows.append(data.qpos.reshape(-1, 7).copy())
    rows = np.array(rows)
    return rows[..., :3], rows[..., 3:]


def at_timestep(scene, timestep):
    """The same bodies, free of contact."""
    exclude = [tuple(pair) for pair in scene.exclude]
    return sp.Scene(scene.bodies, (), timestep, gravity=scene.gravity, exclude=exclude)


def test_free_flight_is_mujocos():
    """A body without spin and one that spins about its symmetry axis, for 50 steps."""
    path = HERE / "welded.xml"
    scene, state = sp.load_model(path)
    state = dataclasses.replace(state, angular_velocity=state.angular_velocity.at[1].set(0.0))
    model, data = reference(path)
    data.qvel[9:12] = 0.0
    ours = rolled(scene, state, 50).state
    position, orientation = mujoco_states(model, data, 50)
    np.testing.assert_allclose(ours.position, position, atol=1e-6)
    for k in range(2):
        ours_turned, theirs_turned = rotations(ours.orientation[:, k]), rotations(orientation[:, k])
        np.testing.assert_allclose(ours_turned, theirs_turned, atol=1e-6)


def test_tumbling_converges_to_mujocos_motion():
    """Both integrators are at least of first order: half the step, half the difference."""
    path = HERE / "welded.xml"
    scene, state = sp.load_model(path)
    differences = []
    for timestep, steps in [(2e-3, 50), (1e-3, 100)]:
        model, data = reference(path)
        model.opt.timestep = timestep
        position, _ = mujoco_states(model, data, steps)
        ours = rolled(at_timestep(scene, timestep), state, steps).state
        differences.append(np.abs(ours.position[-1] - position[-1]).max())
    assert differences[0] < 1e-4
    assert differences[1] < 0.6 * differences[0]


def test_a_box_slides_as_far_as_in_mujoco():
    path = HERE / "slide.xml"
    scene, state = sp.load_model(path)
    ours = rolled(scene, state, 120).state
    position, _ = mujoco_states(*reference(path), 120)
    distance = np.linalg.norm(ours.position[-1, 0, :2])
    np.testing.assert_allclose(distance, np.linalg.norm(position[-1, 0, :2]), rtol=0.03)
    np.testing.assert_allclose(distance, (1 + 0.25) / (2 * 0.3 * 9.81), rtol=0.03)
    np.testing.assert_allclose(ours.position[-1, 0, 2], position[-1, 0, 2], atol=1e-3)


@pytest.mark.parametrize("name", SCENES)
def test_mujoco_compiles_what_is_saved(name, tmp_path):
    scene, state = ready(name)
    path = tmp_path / "scene.xml"
    sp.save_model(scene, state, path)
    model, data = reference(path)
    assert_same_bodies(model, data, scene, state)
    assert model.ngeom == sum(len(body.pieces) for body in scene.bodies) + len(scene.environment)
    np.testing.assert_allclose(model.geom_friction[:, 0], scene.friction)
    assert model.nexclude == len(scene.exclude)
    mujoco.mj_step(model, data)
    assert np.isfinite(data.qpos).all()


def test_round_trip_of_frictions(tmp_path):
    path, balls = tmp_path / "scene.xml", ["rubber", "steel", "ice"]
    bodies = [sp.Body(name, sp.Sphere(0.1), mass=1.0) for name in balls]
    scene = sp.Scene(bodies, [sp.scenes.floor()])
    own = {"rubber": 1.0, "steel": 0.3, "ice": 0.05, "floor": 0.2}

    larger = [max(own[name] for name in names_of(scene, pair)) for pair in scene.pairs]
    varied = dataclasses.replace(scene, friction=larger)
    sp.save_model(varied, scene.state(), path)
    again, _ = sp.load_model(path)
    assert again.pairs == varied.pairs
    np.testing.assert_array_equal(again.friction, varied.friction)

    # Three touch each other: the larger coefficients of two geoms cannot all differ.
    unequal = dataclasses.replace(scene, friction=0.1 * np.arange(1, 7))
    sp.save_model(unequal, scene.state(), path)
    again, _ = sp.load_model(path)
    assert again.pairs == unequal.pairs
    np.testing.assert_array_equal(again.friction, unequal.friction)

    for radii in (0.02, 0.01 * np.arange(1, 7)):
        turning = dataclasses.replace(varied, torsional_radius=radii, rolling_radius=0.003)
        sp.save_model(turning, scene.state(), path)
        again, _ = sp.load_model(path)
        np.testing.assert_allclose(coefficients(again), coefficients(turning), rtol=1e-12)
    sp.save_model(dataclasses.replace(scene, torsional_radius=0.02), scene.state(), path)
    again, _ = sp.load_model(path)
    assert again.rolling_radius is None
    np.testing.assert_allclose(again.torsional_radius, 0.02, rtol=1e-12)


@pytest.mark.parametrize("name", ["drop:polytope", "drop:bundle", "stack", "peg_in_hole"])
def test_round_trip(name, tmp_path):
    scene, state = ready(name)
    path = tmp_path / "new" / "folder" / "scene.xml"
    sp.save_model(scene, state, path)
    again, same = sp.load_model(path)
    for field in ("position", "orientation", "velocity", "angular_velocity"):
        np.testing.assert_allclose(getattr(same, field), getattr(state, field), atol=1e-12)
    for field in ("timestep", "friction", "gravity"):
        np.testing.assert_array_equal(getattr(again, field), getattr(scene, field))
    assert again.exclude == scene.exclude
    before, after = (list(pieces_in_world(s, state)) for s in (scene, again))
    directions = np.random.default_rng(0).normal(size=(20, 3))
    for (first, turn, at), (second, turned, moved) in zip(before, after, strict=True):
        assert type(first) is type(second)
        if isinstance(first, sp.HalfSpace):
            continue
        for d in directions:
            one = d @ (at + turn @ np.array(first.support(turn.T @ d)))
            other = d @ (moved + turned @ np.array(second.support(turned.T @ d)))
            np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_polytope_far_from_its_frame_is_saved_as_it_is(tmp_path):
    """MuJoCo keeps vertices in single precision, 1e-3 at 1e4."""
    shape = sp.Polytope.from_vertices(PYRAMID + np.array([1e4, -2e4, 3e4]))
    scene = sp.Scene([sp.Body("far", shape, mass=1.0)])
    sp.save_model(scene, scene.state(), tmp_path / "scene.xml")
    again, state = sp.load_model(tmp_path / "scene.xml")
    ((found, turn, place),) = pieces_in_world(again, state)
    corners = np.array(found.vertices) @ turn.T + place
    np.testing.assert_allclose(np.ptp(corners, axis=0), np.ptp(PYRAMID, axis=0), atol=1e-7)
    np.testing.assert_allclose(
        corners.mean(axis=0), np.array(shape.vertices).mean(axis=0), atol=1e-6
    )


def test_round_trip_of_exclusions_from_the_environment(tmp_path):
    """The bodies have the names that the fixed bodies of the file would get."""
    wall = (sp.Box((0.1, 1.0, 1.0)), (1.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))
    bodies = [sp.Body(f"fixture{k}", sp.Sphere(radius=0.1), mass=1.0) for k in range(2)]
    exclude = [("fixture0", 1), (0, "fixture1"), ("fixture0", "fixture1")]
    scene = sp.Scene(bodies, [sp.scenes.floor(), wall], exclude=exclude)
    sp.save_model(scene, scene.state(), tmp_path / "scene.xml")
    again, _ = sp.load_model(tmp_path / "scene.xml")
    assert again.exclude == scene.exclude
    assert again.pairs == scene.pairs
    assert [type(f.shape) for f in again.environment] == [sp.HalfSpace, sp.Box]


def test_a_tilted_half_space_is_saved_as_a_plane(tmp_path):
    normal = np.array([0.6, 0.0, 0.8])
    turn = Rotation.from_euler("xyz", [0.3, -0.5, 0.2])
    pose = (1.0, 2.0, 3.0), turn.as_quat(scalar_first=True)
    ground = sp.HalfSpace(normal=normal, offset=0.7)
    scene = sp.Scene([sp.Body("ball", sp.Sphere(radius=0.1), mass=1.0)], [(ground, *pose)])
    sp.save_model(scene, scene.state(), tmp_path / "scene.xml")
    _, data = reference(tmp_path / "scene.xml")
    outward = data.geom_xmat[0].reshape(3, 3)[:, 2]
    np.testing.assert_allclose(outward, turn.apply(normal), atol=1e-9)
    height = outward @ (data.geom_xpos[0] - [1.0, 2.0, 3.0])
    np.testing.assert_allclose(height, 0.7, atol=1e-9)


def test_approximated_shapes_are_named_in_the_file(tmp_path):
    scene, state = ready("bundle_drop")
    sp.save_model(scene, state, tmp_path / "scene.xml")
    text = (tmp_path / "scene.xml").read_text()
    assert "Cone has no counterpart" in text and "MinkowskiSum has no counterpart" in text


def test_what_a_body_loses_is_named(tmp_path):
    scene, state = ready("grasp")
    with pytest.warns(sp.ModelWarning) as told:
        sp.save_model(scene, state, tmp_path / "scene.xml")
    text = (tmp_path / "scene.xml").read_text()
    messages = [str(warning.message) for warning in told]
    assert {warning.filename for warning in told} == {__file__}
    assert len(messages) == 2 * len(scene.bodies)
    assert any(message.startswith("body 'left': a spring") for message in messages)
    assert all(message in text for message in messages)


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("body 'grain': MuJoCo refuses", {}),
        ("XML cannot hold the name 'a.x00'", {"name": "a\0", "mass": 1.0, "inertia": np.eye(3)}),
        ("MuJoCo has no name ''", {"name": "", "mass": 1.0, "inertia": np.eye(3)}),
        ("masses below 1e-15 kg .* got 1e-16", {"mass": 1e-16, "inertia": np.eye(3)}),
    ],
)
def test_what_mujoco_cannot_read_is_not_saved(message, change, tmp_path):
    body = sp.Body(**{"name": "grain", "shapes": sp.Sphere(1e-4), "mass": 1e-8, **change})
    scene = sp.Scene([body])
    with pytest.raises(ValueError, match=message):
        sp.save_model(scene, scene.state(), tmp_path / "none.xml")


@pytest.mark.parametrize("name", ["scale", "mass"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, "2"])
def test_a_scale_or_mass_that_is_not_positive_is_refused(name, value):
    with pytest.raises(ValueError, match=name):
        sp.load_mesh(HERE / "meshes" / "wedge.obj", **{"mass": 3.0, name: value})


def test_a_state_that_is_none_is_not_saved(tmp_path):
    scene, state = sp.scenes.drop("box")
    for name, value in (("velocity", np.nan), ("orientation", 2.0)):
        changed = dataclasses.replace(state, **{name: value * getattr(state, name)})
        with pytest.raises(ValueError, match="state"):
            sp.save_model(scene, changed, tmp_path / "none.xml")


@pytest.mark.parametrize("largest", [3.0, 2.00001])
def test_impossible_inertia_is_not_saved(largest, tmp_path):
    flat = sp.Body("odd", sp.Sphere(radius=0.1), 1.0, np.diag([1.0, 1.0, 2.0]), np.zeros(3))
    odd = np.diag([1.0, 1.0, largest])  # changed where nothing is checked
    body = jax.tree.map(lambda v: odd if np.shape(v) == (3, 3) else v, flat)
    scene = sp.Scene([body])
    with pytest.raises(ValueError, match="body 'odd': principal moments"):
        sp.save_model(scene, scene.state(), tmp_path / "scene.xml")


def test_load_mesh_has_the_inertia_of_the_solid():
    """A wedge is half a box; its products of inertia are known in closed form."""
    body = sp.load_mesh(HERE / "meshes" / "wedge.obj", mass=3.0, scale=2.0)
    ((shape, _, _),) = body.pieces
    assert body.name == "wedge" and len(shape.b) == 5
    np.testing.assert_allclose(shape.mass_properties().volume, 4.0, rtol=1e-6)
    np.testing.assert_allclose(body.center_of_mass, [2 / 3, 1.0, 2 / 3], rtol=1e-6)
    # m L^2 / 18 about each leg's direction through the centroid, m L^2 / 12 along the prism.
    np.testing.assert_allclose(body.inertia[1, 1], 3 * 4 * (1 / 18 + 1 / 18), rtol=1e-6)
    np.testing.assert_allclose(body.inertia[0, 0], 3 * 4 * (1 / 18 + 1 / 12), rtol=1e-6)
    np.testing.assert_allclose(body.inertia[0, 2], 3 * 4 / 36, rtol=1e-6)
    assert (
        sp.load_mesh(HERE / "meshes" / "wedge.obj", mass=3.0, name="door stop").name == "door stop"
    )


def prism(change):
    """The L of corner.obj as triangles: points (n, 3), corners (m, 3)."""
    mesh = trimesh.load(HERE / "meshes" / "corner.obj", force="mesh")
    return mesh.vertices, change(mesh.faces)


@pytest.mark.parametrize("inward", [False, True])
@pytest.mark.parametrize("corner", ["{0}", "{0}/{1}", "{0}//{1}", "{0}/{1}/{1}"])
def test_a_closed_mesh_has_the_inertia_of_its_solid_however_it_is_written(corner, inward, tmp_path):
    """With texture and normals for each triangle, and wound the other way."""
    points, triangles = prism(lambda faces: faces[:, :: -1 if inward else 1])
    lines = ["v {} {} {}".format(*point) for point in points]
    for k, triangle in enumerate(triangles, start=1):
        normal = np.cross(*(points[triangle[1:]] - points[triangle[0]]))
        lines += [f"vt {k / 100} 0", "vn {} {} {}".format(*normal / np.linalg.norm(normal))]
        lines += ["f " + " ".join(corner.format(v + 1, k) for v in triangle)]
    (tmp_path / "corner.obj").write_text("\n".join(lines))
    body = sp.load_mesh(tmp_path / "corner.obj", mass=3.0)
    np.testing.assert_allclose(body.center_of_mass, [5 / 6, 5 / 6, 1 / 2], rtol=1e-6)
    # Three cubes of 1 kg about their centre.
    expected = [[1 / 2 + 2 / 3, 1 / 3, 0], [1 / 3, 1 / 2 + 2 / 3, 0], [0, 0, 1 / 2 + 4 / 3]]
    np.testing.assert_allclose(body.inertia, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "why"),
    [(lambda f: f[1:], "holes"), (lambda f: np.vstack([f[:1, ::-1], f[1:]]), "wind both ways")],
)
def test_a_mesh_that_encloses_no_solid_is_named(change, why, tmp_path):
    mesh = trimesh.Trimesh(*prism(change), process=False)
    mesh.export(tmp_path / "odd.obj")
    with pytest.warns(sp.ModelWarning, match=f"<mesh> odd .*{why}"):
        body = sp.load_mesh(tmp_path / "odd.obj", mass=2.0)
    hull = mesh.convex_hull  # whose mass properties it has then
    np.testing.assert_allclose(body.mass, 2.0)
    np.testing.assert_allclose(body.center_of_mass, hull.center_mass, atol=1e-6)
    np.testing.assert_allclose(body.inertia, 2.0 * hull.moment_inertia / hull.volume, atol=1e-6)


def test_a_vertex_that_is_none_is_refused(tmp_path):
    text = (HERE / "meshes" / "corner.obj").read_text().replace("v 2 0 0", "v nan 0 0")
    (tmp_path / "odd.obj").write_text(text)
    with pytest.raises(ValueError, match=r"odd\.obj: has a vertex that is not finite"):
        sp.load_mesh(tmp_path / "odd.obj", mass=1.0)


def test_load_mesh_cuts_large_hulls_and_says_so(tmp_path):
    trimesh.creation.icosphere(3, radius=0.1).export(tmp_path / "ball.stl")
    with pytest.warns(sp.ModelWarning, match="'?ball'? .*hull of 642 vertices"):
        body = sp.load_mesh(tmp_path / "ball.stl", mass=1.0, max_hull_vertices=20)
    ((shape, _, _),) = body.pieces
    assert len(shape.vertices) == 20
    assert float(shape.bounding_radius) <= 0.1 + 1e-6


@pytest.mark.parametrize(("level", "most"), [(1, 20), (1, 40), (2, 64)])
def test_a_hull_of_rounded_points_has_no_more_vertices_than_asked_for(level, most):
    """Some of its faces have four corners, which single precision leaves in no plane."""
    points = trimesh.creation.icosphere(level).vertices.astype(np.float32)
    polytope = hull(points, most).polytope
    corners = np.array(polytope.vertices)
    assert len(corners) <= most
    apart = np.linalg.norm(corners[:, None] - points, axis=-1).min(axis=1)
    assert apart.max() < 1e-6
    volume = polytope.mass_properties().volume
    np.testing.assert_allclose(volume, ConvexHull(corners).volume, rtol=1e-6)


def test_flat_mesh_is_refused(tmp_path):
    (tmp_path / "flat.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nv 1 1 0\nf 1 2 3\nf 2 4 3\n")
    with pytest.raises(ValueError, match=r"flat\.obj.*no volume"):
        sp.load_mesh(tmp_path / "flat.obj", mass=1.0)


def test_decomposition_leaves_the_notch_open():
    """The notch of an L is inside its hull and outside its pieces."""
    pytest.importorskip("coacd")
    notch = np.array([1.4, 1.4, 0.5])
    hull = sp.load_mesh(HERE / "meshes" / "corner.obj", mass=3.0)
    pieces = sp.load_mesh(HERE / "meshes" / "corner.obj", mass=3.0, decompose=True)
    model = sp.load_model(HERE / "corner.xml", decompose=True)[0].bodies[0]
    assert bool(hull.shapes.contains(notch))
    for body in (pieces, model):
        assert len(body.pieces) == 2
        assert not bool(body.shapes.contains(notch))
        np.testing.assert_allclose(body.shapes.mass_properties().volume, 3.0, rtol=1e-3)
        np.testing.assert_allclose(body.mass, 3.0, rtol=1e-6)
        np.testing.assert_allclose(body.inertia, hull.inertia, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("kind", ["xml", "urdf"])
def test_another_encoding_is_refused_by_name(kind, tmp_path):
    told = '<?xml version="1.0" encoding="ISO-8859-1"?>'
    text = {"xml": '<mujoco model="é"/>', "urdf": '<robot name="é"><link name="a"/></robot>'}[kind]
    path = tmp_path / f"latin.{kind}"
    path.write_text(told + text, encoding="latin-1")
    with pytest.raises(ValueError, match=rf"latin\.{kind}: is not UTF-8"):
        sp.load_model(path)
