"""What there is to see in a simulation, as plain numpy data: shared by every display."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from silico_py import rotation
from silico_py.one_step import ContactInfo, Info, arms, shift
from silico_py.scene import ContactPair, Scene, State, check_scene
from silico_py.simulate import Trajectory
from silico_py.status import Status
from silico_py.viewing.meshes import PieceMesh, Plane, body_pieces, fixtures

# Okabe and Ito's palette, which colour-blind people can tell apart, a little softened.
COLORS = ("#3d7fc4", "#e08a2e", "#3aa27d", "#c45a8f", "#d2b13a", "#65b4de", "#c75146", "#7d6bb8")
STATE_WIDTHS = {"position": 3, "orientation": 4, "velocity": 3, "angular_velocity": 3}
UNIT_TOLERANCE = 1e-3  # an orientation further from norm 1 is not drawn
TYPICAL_ARROW = 0.45  # length of a typical force [radius of the view]
LONGEST_ARROW = 1.0  # longer arrows are cut [radius of the view]
SMALLEST_ARROW = 0.01  # shorter arrows are not drawn [typical arrow]
FIRM = 9.81  # force at which a pair may be its own size apart and touch [N/kg of the lighter body]
LEVEL = 0.7  # cosine of the slope up to which a half-space is ground
FIXTURE_SHARE = 0.5  # of the motion's extent, by which fixtures may enlarge the view
FAR = 1e4  # from here bodies are less than a pixel of a view that holds them [largest piece]
SINGLE = np.finfo(np.float32)  # of what browsers draw

Fixed = tuple[PieceMesh | Plane, ...]


class ContactFrames(NamedTuple):
    """The contacts of every frame, in the order of `scene.pairs`.

    Attributes:
        names: as of `Scene.pair_names`.
        first: index of piece a.
        second: index of piece b; -1 for a half-space, which alpha does not scale.
        alpha: (frames, contacts), NaN at the start.
        point: (frames, contacts, 3) world [m].
        force: (frames, contacts, 3) on piece a, world [N].
        touches: (frames, contacts) whether the pair touches; a relaxed step gives bodies that are
            apart a tiny force, too.
    """

    names: tuple[str, ...]
    first: np.ndarray
    second: np.ndarray
    alpha: np.ndarray
    point: np.ndarray
    force: np.ndarray
    touches: np.ndarray


@dataclass(frozen=True)
class Replay:
    """A finished simulation. Frame 0 shows the start, frame k the state after k steps.

    Attributes:
        names: of the bodies.
        pieces: meshes of bodies, then of fixtures.
        planes: half-spaces of the environment.
        timestep: [s].
        position: (frames, n, 3) world [m].
        orientation: (frames, n, 4) wxyz, body to world.
        visible: (frames, n) whether the pose can be drawn, see `drawable`.
        contacts: of every frame.
        notes: by frame, what went wrong there.
        center: (3,) middle of the box that holds the motion, world [m].
        reach: (3,) half its sides [m].
        up: (3,) unit vector against gravity; z without gravity.
        arrow_scale: length of a force arrow [m/N].
    """

    names: tuple[str, ...]
    pieces: tuple[PieceMesh, ...]
    planes: tuple[Plane, ...]
    timestep: float
    position: np.ndarray
    orientation: np.ndarray
    visible: np.ndarray
    contacts: ContactFrames
    notes: dict[int, str]
    center: np.ndarray
    reach: np.ndarray
    up: np.ndarray
    arrow_scale: float

    @classmethod
    def of(cls, scene: Scene, trajectory: Trajectory) -> Replay:
        """Read a simulation.

        Args:
            scene: the scene.
            trajectory: as `rollout` of this scene returns it, one state a step.

        Raises:
            ValueError: for something that is not a trajectory, is empty, is batched, belongs
                to another scene, or holds no finite pose at all.
        """
        states = _states(scene, trajectory)
        poses = _poses(scene, states)
        bodies = tuple(body_pieces(scene))
        fixed = tuple(fixtures(scene))
        pieces = bodies + tuple(f for f in fixed if isinstance(f, PieceMesh))
        center, reach = _view(pieces, *poses)
        info, steps = trajectory.info, len(states.position)
        contacts = _contacts(scene, steps, info.contacts, pieces, fixed)
        return cls(
            names=tuple(body.name for body in scene.bodies),
            pieces=pieces,
            planes=tuple(f for f in fixed if isinstance(f, Plane)),
            timestep=float(scene.timestep),
            position=poses[0],
            orientation=poses[1],
            visible=poses[2],
            contacts=contacts,
            notes=_notes(scene, states, info),
            center=center,
            reach=reach,
            up=up_direction(scene),
            arrow_scale=TYPICAL_ARROW * float(np.linalg.norm(reach)) / _typical(contacts),
        )

    @property
    def frames(self) -> int:
        """Number of frames, one more than of steps."""
        return len(self.position)

    @property
    def radius(self) -> float:
        """Radius of a ball about `center` that holds the view [m]."""
        return float(np.linalg.norm(self.reach))

    @property
    def longest_arrow(self) -> float:
        """Length at which force arrows are cut [m]."""
        return LONGEST_ARROW * self.radius

    @property
    def smallest_arrow(self) -> float:
        """Shorter force arrows, and their contact points, are not drawn [m]."""
        return SMALLEST_ARROW * TYPICAL_ARROW * self.radius

    @property
    def view_direction(self) -> np.ndarray:
        """(3,) unit vector from `center` to where a camera stands well."""
        right = np.eye(3)[1 if abs(self.up[0]) > 0.9 else 0]
        right = right - (right @ self.up) * self.up
        right /= np.linalg.norm(right)
        direction = 0.75 * right - np.cross(self.up, right) + 0.5 * self.up
        return direction / np.linalg.norm(direction)

    @property
    def grid_cell(self) -> float:
        """Side of a square of the grid on planes: 1, 2 or 5 times a power of ten [m]."""
        goal = self.radius / 4
        power = 10.0 ** np.floor(np.log10(goal))
        return float(power * max(step for step in (1, 2, 5) if step * power <= goal))

    def is_level(self, plane: Plane) -> bool:
        """Whether a half-space is ground rather than a wall."""
        return bool(plane.normal @ self.up > LEVEL)

    def plane_extent(self, plane: Plane) -> float:
        """Half side of the square to draw for a half-space [m]."""
        return (30 if self.is_level(plane) else 1.5) * self.radius

    def time(self, frame: int) -> float:
        """[s] from the start of the simulation."""
        return frame * self.timestep

    def time_text(self, frame: int) -> str:
        """The same with as many digits as tell it from the next frame's."""
        return f"{self.time(frame):.{decimals(self.timestep)}f} s"

    def touching(self, frame: int) -> np.ndarray:
        """(k,) contacts of a frame that touch with a force large enough to be drawn."""
        touching = np.flatnonzero(self.contacts.touches[frame])
        force = np.linalg.norm(self.contacts.force[frame, touching], axis=-1)
        return touching[self.arrow_scale * force >= self.smallest_arrow]

    def arrows(self, frame: int) -> np.ndarray:
        """(k, 2, 3) start and tip of the force arrows of a frame, world [m]."""
        touching = self.touching(frame)
        point, force = self.contacts.point[frame, touching], self.contacts.force[frame, touching]
        arrow = self.arrow_scale * force
        length = np.linalg.norm(arrow, axis=-1, keepdims=True)
        return np.stack([point, point + np.minimum(1, self.longest_arrow / length) * arrow], axis=1)


def body_color(body: int) -> str:
    """Colour of a body in all that is drawn of it, as #rrggbb."""
    return COLORS[body % len(COLORS)]


def up_direction(scene: Scene) -> np.ndarray:
    """(3,) unit vector against gravity; z without gravity."""
    gravity = np.asarray(scene.gravity, float)
    strength = np.linalg.norm(gravity)
    return -gravity / strength if strength > 0 else np.array([0.0, 0.0, 1.0])


def decimals(difference: float) -> int:
    """Digits after the point that tell numbers apart that differ by this."""
    # Single precision makes a hundredth a little less than that.
    return max(0, int(np.ceil(-np.log10(difference) - 1e-6)))


def drawable(scene: Scene, position: np.ndarray, orientation: np.ndarray) -> np.ndarray:
    """(frames, n) which poses can be drawn.

    Not those that are no poses, those so far away that rounding leaves nothing of the shapes, nor
    those so far from the body that is nearest the origin at the start that a view of both would
    show nothing.
    """
    size = _largest_piece(scene)
    with np.errstate(invalid="ignore", over="ignore"):
        found = np.spacing(np.linalg.norm(position, axis=-1)) < size / FAR
        found &= np.abs(np.linalg.norm(orientation, axis=-1) - 1) < UNIT_TOLERANCE
        if not found.any():
            return found
        first = np.argmax(found.any(axis=1))
        origin = min(position[first, found[first]], key=np.linalg.norm)
        return found & (np.linalg.norm(position - origin, axis=-1) < FAR * size)


def _largest_piece(scene: Scene) -> float:
    shapes = (shape for body in scene.bodies for shape, *_ in body.pieces)
    return max(float(shape.characteristic_length) for shape in shapes)


def _states(scene: Scene, trajectory: Any) -> State:
    """The states after each step, checked, as numpy arrays."""
    check_scene(scene)
    if not isinstance(trajectory, Trajectory):
        raise ValueError(
            f"trajectory: expected what rollout returns, got {type(trajectory).__name__}"
        )
    n, steps = len(scene.bodies), None
    rows: dict[str, Any] = {}
    for field, width in STATE_WIDTHS.items():
        value = getattr(trajectory.state, field)
        rows[field] = _rows(f"trajectory.state.{field}", value, steps, n, width)
        steps = len(rows[field])
    if not steps:
        raise ValueError("trajectory: has no steps; nothing to show")
    return State(**rows)


def _poses(scene: Scene, states: State) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions and orientations, the start first, and which of them can be drawn."""
    start = _start(scene, states[0])
    position = np.concatenate([start[0][None], states.position])
    orientation = np.concatenate([start[1][None], states.orientation])
    visible = drawable(scene, position, orientation)
    if not visible.any():
        raise ValueError("trajectory: no body has a finite pose in any step; nothing to show")
    return position, orientation, visible


def _start(scene: Scene, after: State) -> tuple[np.ndarray, np.ndarray]:
    """Positions and orientations one step before a state.

    A step moves centre of mass and orientation by the velocities at its end, so they lead back.
    """
    arm, h = arms(scene), float(scene.timestep)
    center, velocity = shift(after, arm)
    turn = rotation.cayley(-h * after.angular_velocity)
    orientation = rotation.multiply(after.orientation, turn)
    position = center - h * velocity - rotation.rotate(orientation, arm)
    return np.asarray(position, float), np.asarray(orientation, float)


def _rows(name: str, value: Any, *shape: int | None) -> np.ndarray:
    array = np.array(value, float)
    fits = array.ndim == len(shape) and all(
        want in (None, got) for want, got in zip(shape, array.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("steps" if want is None else str(want) for want in shape)
        raise ValueError(
            f"{name}: expected shape ({wanted}), got {array.shape}; give one rollout of this scene"
        )
    return array


def _notes(scene: Scene, states: State, info: Info) -> dict[int, str]:
    """What went wrong, by frame."""
    steps = len(states.position)
    converged = _rows("trajectory.info.converged", info.converged, steps)
    status = _rows("trajectory.info.status", info.status, steps)
    names = np.array([body.name for body in scene.bodies])
    finite = np.ones((steps, len(names)), bool)
    for field in STATE_WIDTHS:
        finite &= np.isfinite(getattr(states, field)).all(axis=-1)
    notes = {}
    for k in np.flatnonzero((converged == 0) | ~finite.all(axis=1)):
        said = [f"did not converge: {Status(int(status[k])).message}"] if not converged[k] else []
        if not finite[k].all():
            said.append(f"state not finite: {', '.join(names[~finite[k]])}")
        notes[int(k) + 1] = f"step {k + 1} " + "; ".join(said)
    return notes


def _contacts(
    scene: Scene, steps: int, found: ContactInfo, pieces: tuple[PieceMesh, ...], fixed: Fixed
) -> ContactFrames:
    pairs = scene.pairs
    ends = [_ends(pair, pieces, fixed) for pair in pairs]
    index = {id(piece): k for k, piece in enumerate(pieces)}

    def frames(field: str, at_start: float, *shape: int) -> np.ndarray:
        rows = _rows(f"trajectory.info.contacts.{field}", getattr(found, field), steps, *shape)
        return np.concatenate([np.full_like(rows[:1], at_start), rows])

    alpha = frames("alpha", np.nan, len(ends))
    point, force = (frames(field, 0.0, len(ends), 3) for field in ("point", "force"))
    mass = np.array([_lighter(scene, pair) for pair in pairs])
    return ContactFrames(
        scene.pair_names,
        np.array([index[id(a)] for a, _ in ends], int),
        np.array([index.get(id(b), -1) for _, b in ends], int),
        alpha,
        point,
        force,
        _touches(alpha, point, force, mass),
    )


def _lighter(scene: Scene, pair: ContactPair) -> float:
    """Mass of the lighter body of a pair [kg]."""
    bodies = (pair.body_a, pair.body_b)
    return min(float(scene.bodies[body].mass) for body in bodies if body is not None)


def _touches(
    alpha: np.ndarray, point: np.ndarray, force: np.ndarray, mass: np.ndarray
) -> np.ndarray:
    """Whether pairs touch.

    The relaxation fixes the product of force and gap. Of bodies apart the gap is the larger one,
    of bodies that touch the force, whatever the relaxation is. What counts as one unit of force is
    the same with gravity and without.
    """
    with np.errstate(over="ignore"):
        size = np.linalg.norm(force, axis=-1)
    # Against NaN every comparison is false.
    firm = (size > SINGLE.tiny) & (size < SINGLE.max) & (size > FIRM * mass * (alpha - 1))
    return firm & (np.abs(point) < SINGLE.max).all(axis=-1)


def _ends(
    pair: ContactPair, pieces: tuple[PieceMesh, ...], fixed: Fixed
) -> tuple[PieceMesh, PieceMesh | Plane]:
    first = [p for p in pieces if p.body == pair.body_a][pair.piece_a]
    if pair.body_b is None:
        return first, fixed[pair.piece_b]
    return first, [p for p in pieces if p.body == pair.body_b][pair.piece_b]


def _view(
    pieces: tuple[PieceMesh, ...],
    position: np.ndarray,
    orientation: np.ndarray,
    visible: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Middle and half sides of the box around the motion; fixtures enlarge it, but not without
    bound."""
    origin = position[visible][0]  # far from that of the world, corners would be rounded
    swept = []
    for piece in (p for p in pieces if p.body is not None and visible[:, p.body].any()):
        seen = visible[:, piece.body]
        turn = Rotation.from_quat(orientation[seen, piece.body], scalar_first=True)
        for corner in _box_corners(piece):
            swept.append(turn.apply(corner) + (position[seen, piece.body] - origin))
    moving = np.concatenate(swept)
    low, high = moving.min(axis=0), moving.max(axis=0)
    reach = FIXTURE_SHARE * np.max(high - low)
    fixed = [_box_corners(piece) - origin for piece in pieces if piece.body is None]
    points = np.clip(np.concatenate([[low, high], *fixed]), low - reach, high + reach)
    low, high = points.min(axis=0), points.max(axis=0)
    return origin + (low + high) / 2, (high - low) / 2


def _box_corners(piece: PieceMesh) -> np.ndarray:
    """(8, 3) in the frame of the piece's body."""
    ends = np.stack([piece.vertices.min(axis=0), piece.vertices.max(axis=0)]) + piece.reference
    return np.stack(np.meshgrid(*ends.T), axis=-1).reshape(-1, 3)


def _typical(contacts: ContactFrames) -> float:
    """The median over the steps with contact of the largest force [N]; 1 without any contact.

    Not the largest: an impact lasts one step and would leave every other arrow invisible.
    """
    force = np.where(contacts.touches[..., None], contacts.force, 0)
    largest = np.linalg.norm(force, axis=-1).max(axis=1, initial=0)
    return float(np.median(largest[largest > 0])) if largest.any() else 1.0
