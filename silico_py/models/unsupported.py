"""Find what a compiled model holds that a scene cannot represent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from silico_py.models import friction
from silico_py.models.compiling import Compiled
from silico_py.models.errors import Element
from silico_py.models.layout import WORLD, Layout, body_name, geom_label, lines, may_touch
from silico_py.models.optional import mujoco

# Whole element kinds: (kind and tag, list in the spec).
LISTS = (
    ("actuator", "actuators"),
    ("tendon", "tendons"),
    ("equality", "equalities"),
    ("flex", "flexes"),
    ("plugin", "plugins"),
    ("sensor", "sensors"),
)
# Fields younger than the oldest MuJoCo that will do are read as zeros where they lack.
FREE_JOINT_FIELDS = ("jnt_stiffness", "jnt_stiffnesspoly")
FREE_DOF_FIELDS = ("dof_damping", "dof_dampingpoly", "dof_frictionloss", "dof_armature")
CONTACT_FIELDS = ("margin", "adhesion", "surfacevel")
HARMLESS_GAP = (3, 9)  # the version from which on a gap moves no force
DEFAULT_SOLREF = (0.02, 1.0)
DEFAULT_SOLIMP = (0.9, 0.95, 0.001, 0.5, 2.0)


def unsupported(compiled: Compiled, layout: Layout) -> list[Element]:
    """Every such element but those of contact pairs (see `contacts`)."""
    return [
        *_lists(compiled),
        *_joints(compiled),
        *_free_joints(compiled.model),
        *_bodies(compiled.model, layout),
        *_asleep(compiled.model),
        *_options(compiled.model.opt),
        *_geoms(compiled),
        *_pairs(compiled),
        *compiled.extensions,
    ]


def _lists(compiled: Compiled) -> Iterator[Element]:
    for kind, elements in LISTS:
        where = lines(compiled, elements)
        for element in getattr(compiled.spec, elements):
            yield Element(kind, kind, _label(element), where.get(element.id, ""))


def _joints(compiled: Compiled) -> Iterator[Element]:
    model, where = compiled.model, lines(compiled, "joints")
    for j in range(model.njnt):
        kind = mujoco.mjtJoint(int(model.jnt_type[j]))
        if kind == mujoco.mjtJoint.mjJNT_FREE:
            continue
        word = kind.name.removeprefix("mjJNT_").lower()
        body = body_name(model, model.jnt_bodyid[j])
        remark = _joined(f"{word} of body {body!r}", where.get(j))
        yield Element("joint", "joint", _label(model.joint(j)), remark)


def _field(model: Any, name: str, length: int) -> np.ndarray:
    return getattr(model, name, np.zeros(length))


def _label(element: Any) -> str:
    """What messages call it."""
    return repr(element.name) if element.name else f"#{element.id}"


def _joined(*remarks: str | None) -> str:
    return ", ".join(filter(None, remarks))


def _free_joints(model: Any) -> Iterator[Element]:
    for j in np.flatnonzero(model.jnt_type == int(mujoco.mjtJoint.mjJNT_FREE)):
        dofs = slice(model.jnt_dofadr[j], model.jnt_dofadr[j] + 6)
        rows: dict[str, Any] = dict.fromkeys(FREE_JOINT_FIELDS, j)
        rows |= dict.fromkeys(FREE_DOF_FIELDS, dofs)
        present = [
            field.partition("_")[2]
            for field, row in rows.items()
            if np.any(_field(model, field, model.nv)[row])
        ]
        if present:
            remark = "free, with " + ", ".join(present)
            yield Element("damping", "joint", _label(model.joint(int(j))), remark)


def _bodies(model: Any, layout: Layout) -> Iterator[Element]:
    for body in range(model.nbody):
        name = repr(body_name(model, body))
        if model.body_mocapid[body] >= 0:
            yield Element("mocap", "body", name, "mocap")
        if model.body_gravcomp[body] and layout.of_body[body] != WORLD:
            yield Element("gravcomp", "body", name, f"gravcomp {model.body_gravcomp[body]:g}")


def _asleep(model: Any) -> Iterator[Element]:
    """Bodies that hang where they are until something touches them; older MuJoCos have none."""
    policy = getattr(mujoco, "mjtSleepPolicy", None)
    if policy is None or not model.opt.enableflags & mujoco.mjtEnableBit.mjENBL_SLEEP:
        return
    for tree in np.flatnonzero(model.tree_sleep_policy == int(policy.mjSLEEP_INIT)):
        yield Element("sleep", "body", repr(body_name(model, model.tree_bodyadr[tree])), "asleep")


def _options(option: Any) -> Iterator[Element]:
    for name in ("density", "viscosity"):
        value = getattr(option, name)
        if value:
            yield Element("option", "option", name, f"{value:g}")
    disable, enable = mujoco.mjtDisableBit, mujoco.mjtEnableBit
    for name, on in {
        "contact": option.disableflags & disable.mjDSBL_CONTACT,
        "constraint": option.disableflags & disable.mjDSBL_CONSTRAINT,
        "override": option.enableflags & enable.mjENBL_OVERRIDE,
    }.items():
        if on:
            yield Element("flag", "flag", name)


def _geoms(compiled: Compiled) -> Iterator[Element]:
    model, where = compiled.model, lines(compiled, "geoms")
    for g in np.flatnonzero(may_touch(model)):
        for kind, remark in _geom_remarks(model, int(g)):
            name = geom_label(model, int(g))
            yield Element(kind, "geom", name, _joined(remark, where.get(int(g))))


def _geom_remarks(model: Any, g: int) -> Iterator[tuple[str, str]]:
    for kind in ("hfield", "sdf"):
        if model.geom_type[g] == getattr(mujoco.mjtGeom, f"mjGEOM_{kind.upper()}"):
            yield kind, kind
    yield from _contact_remarks(model, "geom", g)
    yield from _turning_remarks(model.geom_condim[g], model.geom_friction[g])


def _pairs(compiled: Compiled) -> Iterator[Element]:
    model, where = compiled.model, lines(compiled, "pairs")
    for k in range(model.npair):
        for kind, remark in _pair_remarks(model, k):
            yield Element(kind, "pair", _label(model.pair(k)), _joined(remark, where.get(k)))


def _pair_remarks(model: Any, k: int) -> Iterator[tuple[str, str]]:
    first, second, _, *rolling = model.pair_friction[k]
    condim = model.pair_dim[k]
    if condim > 1 and first != second:
        yield "pair", f"friction {first} and {second}"
    if condim > 4 and rolling[0] != rolling[1]:
        yield "pair", f"rolling friction {rolling[0]} and {rolling[1]}"
    yield from _contact_remarks(model, "pair", k)
    yield from _turning_remarks(condim, model.pair_friction[k, [0, 2, 3]])


def _turning_remarks(condim: int, coefficients: np.ndarray) -> Iterator[tuple[str, str]]:
    """What resists turns without friction that resists slip."""
    sliding, *turning = friction.acting(coefficients, condim)
    if any(turning) and sliding == 0:
        yield "condim", f"condim {condim} without sliding friction"


def _gap() -> tuple[str, ...]:
    """The field by which contacts push only once they are deeper than it, in MuJoCos that have it
    so."""
    version = tuple(int(part) for part in mujoco.__version__.split(".")[:2])
    return ("gap",) if version < HARMLESS_GAP else ()


def _contact_remarks(model: Any, of: str, k: int) -> Iterator[tuple[str, str]]:
    """Remarks by the fields that geoms and pairs have in common."""
    for kind in (*CONTACT_FIELDS, *_gap()):
        value = _field(model, f"{of}_{kind}", k + 1)[k]
        if np.any(value):
            yield kind, f"{kind} {value}"
    solref, solimp = (getattr(model, f"{of}_{name}")[k] for name in ("solref", "solimp"))
    if tuple(solref) != DEFAULT_SOLREF or tuple(solimp) != DEFAULT_SOLIMP:
        yield "solref", f"solref {solref}, solimp {solimp}"
