"""What a model holds that a scene cannot, and how that is reported."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass

REFUSED = {
    "joint": "any joint but a free one; ignored, its body is welded to the parent",
    "damping": "damping, stiffness, friction loss or armature of a free joint",
    "actuator": "actuators",
    "tendon": "tendons",
    "equality": "equality constraints",
    "pair": "explicit pairs with two coefficients of friction; ignored, the first one holds",
    "flex": "deformable bodies",
    "plugin": "plugins",
    "mocap": "mocap bodies; ignored, they stand still",
    "gravcomp": "gravity compensation",
    "sleep": "bodies that are asleep at the start",
    "option": "wind and fluid forces of <option>",
    "flag": "flags that switch contact off or override it",
    "hfield": "height fields; ignored, they are left out",
    "sdf": "signed distance fields; ignored, they are left out",
    "margin": "a contact margin",
    "gap": "a contact gap, which MuJoCo took off the margin before 3.9",
    "adhesion": "adhesive contacts",
    "surfacevel": "moving surfaces",
    "condim": "torsional and rolling friction without sliding friction",
    "contact": "collision filters finer than pairs of bodies; ignored, all of them collide",
}
TOLERATED = {
    "sensor": "sensors are left out",
    "solref": "solref and solimp are left out: contacts are rigid here",
    "extension": "extensions of other simulators are left out",
    "open": "meshes enclose no solid: mass properties are those of their convex pieces",
    "hull": "convex hulls have fewer vertices than the meshes (see max_hull_vertices)",
}

# Elements that a warning spells out; an error spells out all.
LISTED = 10


class ModelWarning(UserWarning):
    """A part of a model is left out or approximated, and the user should know."""


@dataclass(frozen=True)
class Element:
    """One element of a model that a scene cannot represent.

    Attributes:
        kind: the word that `ignore` takes.
        tag: XML tag.
        name: as in the file; a number where the file gives none.
        remark: why, where the kind alone does not say.
    """

    kind: str
    tag: str
    name: str
    remark: str = ""

    def __str__(self) -> str:
        remark = f"({self.remark})" if self.remark else ""
        return " ".join(filter(None, [f"<{self.tag}>", self.name, remark]))


class UnsupportedModelError(ValueError):
    """A model has elements that cannot be simulated here.

    Attributes:
        source: the file.
        elements: each of them.
        ignore: the kinds to leave out so that it loads, those ignored already among them; empty
            where that does not help.
    """

    ignore: tuple[str, ...] = ()

    def __init__(
        self, source: str, elements: Iterable[Element], ignored: Iterable[str] = ()
    ) -> None:
        self.source = source
        self.elements = tuple(elements)
        lines = [f"{source}: cannot be simulated here because of"]
        lines += [f"  {element}" for element in self.elements]
        kinds = [element.kind for element in self.elements]
        if REFUSED.keys() >= set(kinds):
            self.ignore = tuple(dict.fromkeys([*ignored, *kinds]))
            lines.append(f"to load it without them: ignore={self.ignore}")
        super().__init__("\n".join(lines))


def checked_ignore(ignore: str | Iterable[str]) -> tuple[str, ...]:
    """The kinds to ignore, `"all"` written out.

    Raises:
        ValueError: for a word that is not a kind.
    """
    known = REFUSED.keys() | TOLERATED.keys()
    if not isinstance(ignore, Iterable):
        raise ValueError(f"ignore: expected 'all' or some of {sorted(known)}, got {ignore!r}")
    asked = (ignore,) if isinstance(ignore, str) else tuple(ignore)
    unknown = set(asked) - known - {"all"}
    if unknown:
        raise ValueError(f"ignore: expected 'all' or some of {sorted(known)}, got {unknown}")
    return tuple(known) if "all" in asked else asked


def report(source: str, elements: Iterable[Element], ignored: tuple[str, ...] = ()) -> None:
    """Raise for elements that matter, warn for those that do not, pass over `ignored`.

    Raises:
        UnsupportedModelError: for any element of a kind in `REFUSED`.
    """
    left = [element for element in elements if element.kind not in ignored]
    refused = [element for element in left if element.kind in REFUSED]
    if refused:
        raise UnsupportedModelError(source, refused, ignored)
    for kind, meaning in TOLERATED.items():
        found = [element for element in left if element.kind == kind]
        if found:
            lines = [f"{source}: {meaning}", *map("  {}".format, found[:LISTED])]
            if found[LISTED:]:
                lines.append(f"  and {len(found) - LISTED} more")
            warnings.warn(ModelWarning("\n".join(lines)), stacklevel=3)
