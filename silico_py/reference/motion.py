"""The balance of momenta of one body over a step, in numpy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from silico_py.body import Body
from silico_py.integrator import FAST
from silico_py.reference.report import Condition, at_most
from silico_py.scene import Scene, State


class Motion(NamedTuple):
    """A body at its centre of mass.

    Attributes:
        position, velocity: of the centre of mass, world [m], [m/s].
        turn: from the body frame to the world.
        spin: angular velocity, body frame [rad/s].
    """

    position: np.ndarray
    velocity: np.ndarray
    turn: Rotation
    spin: np.ndarray

    @classmethod
    def of(cls, body: Body, state: State, index: int) -> Motion:
        """Motion of body `index`, whose state refers to the origin of its frame."""
        x, q, v, w = (
            np.array(part, float)[index]
            for part in (state.position, state.orientation, state.velocity, state.angular_velocity)
        )
        turn, arm = Rotation.from_quat(q, scalar_first=True), np.array(body.center_of_mass, float)
        return cls(x + turn.apply(arm), v + turn.apply(np.cross(w, arm)), turn, w)

    def velocity_at(self, point: np.ndarray) -> np.ndarray:
        """Velocity of the material point at a world point [m/s]."""
        return self.velocity + np.cross(self.turn.apply(self.spin), point - self.position)

    def displacement_at(self, point: np.ndarray, before: Motion) -> np.ndarray:
        """Displacement from where the material point at a world point was before [m]."""
        held = self.turn.inv().apply(point - self.position)
        return point - (before.position + before.turn.apply(held))


def free_load(scene: Scene, index: int, control: np.ndarray) -> np.ndarray:
    """Weight and control (6,) of a body; nothing in a direction with stiffness."""
    body = scene.bodies[index]
    weight = float(body.mass) * np.append(np.asarray(scene.gravity, float), np.zeros(3))
    return np.where(np.asarray(body.stiffness, float) > 0, 0.0, weight + control)


class Load(NamedTuple):
    """What acts on a body during the step.

    Attributes:
        impulse: world [N s].
        point: where, world [m]; None for the centre of mass.
        moment: free angular impulse, world [N m s]; None for none.
        error: of the impulse as it is known here [N s].
    """

    impulse: np.ndarray
    point: np.ndarray | None = None
    moment: np.ndarray | None = None
    error: float = 0.0


class Balance(NamedTuple):
    """One body over one step.

    Attributes:
        name: of the body.
        mass: [kg].
        speed: unit of speed [m/s].
        inertia: about the centre of mass, body frame [kg m^2].
        stiffness: (6,) of springs to a commanded displacement, world [N/m, N m/rad].
        timestep: [s].
        before, after: its motion.
        loads: weight, control and contacts.
    """

    name: str
    mass: float
    speed: float
    inertia: np.ndarray
    stiffness: np.ndarray
    timestep: float
    before: Motion
    after: Motion
    loads: list[Load]

    def conditions(self, tolerance: float, rounding: float) -> dict[str, Condition]:
        """Pose update and both balances, each in units of the body at the unit of speed."""
        unit, turning = self.units()
        pose, extent = self.pose_error(), np.abs(self.after.position).max()
        linear = np.abs(self.linear() / unit).max()
        angular = np.abs(self.angular() / turning).max()
        unknown = sum(load.error for load in self.loads) / unit.min()
        leverage = sum(load.error * np.linalg.norm(self.arm(load)) for load in self.loads)
        speed, swing = np.abs(self.after.velocity).max(), np.abs(self.after.spin).max()
        room = tolerance + unknown + rounding * (1 + speed)
        turning_room = tolerance + leverage / turning.min() + rounding * (1 + swing)
        return {
            "pose": at_most(pose, rounding * (1 + extent), self.name),
            "momentum": at_most(linear, room, self.name),
            "angular_momentum": at_most(angular, turning_room, self.name),
        }

    def units(self) -> tuple[np.ndarray, np.ndarray]:
        """What the speed before the step changes in each row of the balances, springs included."""
        gyration = np.sqrt(np.trace(self.inertia) / 3 / self.mass)
        springs, arm = self.timestep**2 * self.stiffness, self.mass * gyration
        spinning = 2 * gyration * np.linalg.norm(self.before.spin)
        speed = max(self.speed, (np.linalg.norm(self.before.velocity) + spinning) / FAST)
        return speed * (self.mass + springs[:3]), speed * (arm + springs[3:])

    def arm(self, load: Load) -> np.ndarray:
        """Arm from the next centre of mass to where the load acts [m]."""
        return np.zeros(3) if load.point is None else load.point - self.after.position

    def pose_error(self) -> float:
        """Distance of the next pose from x + h v+ and q (x) cay(h w+) [m], [rad]."""
        moved = self.before.position + self.timestep * self.after.velocity
        half = self.timestep * self.after.spin / 2
        turned = self.before.turn * Rotation.from_quat([1.0, *half], scalar_first=True)
        angle = (turned.inv() * self.after.turn).magnitude()
        return float(max(np.abs(self.after.position - moved).max(), angle))

    def linear(self) -> np.ndarray:
        """m (v+ - v) less all impulses [N s]."""
        change = self.mass * (self.after.velocity - self.before.velocity)
        return change - sum(load.impulse for load in self.loads)

    def angular(self) -> np.ndarray:
        """R [D(h w+)^T J w+ - D(-h w)^T J w] less all angular impulses [N m s]."""
        h, w, after = self.timestep, self.before.spin, self.after.spin
        change = _cayley_derivative(h * after).T @ self.inertia @ after
        change = change - _cayley_derivative(-h * w).T @ self.inertia @ w
        moments = [np.cross(self.arm(load), load.impulse) for load in self.loads]
        free = [load.moment for load in self.loads if load.moment is not None]
        return self.before.turn.apply(change) - sum(moments + free)


def _cayley_derivative(t: np.ndarray) -> np.ndarray:
    """D(t) = I - [t]x / 2 + t t^T / 4."""
    cross = np.array([[0, -t[2], t[1]], [t[2], 0, -t[0]], [-t[1], t[0], 0]])
    return np.eye(3) - cross / 2 + np.outer(t, t) / 4
