"""Drake's discrete plant with the SAP solver and hydroelastic contact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from pydrake.common.eigen_geometry import Quaternion
from pydrake.geometry import (
    AddCompliantHydroelasticProperties,
    AddContactMaterial,
    AddRigidHydroelasticProperties,
    Box,
    HalfSpace,
    ProximityProperties,
)
from pydrake.math import RigidTransform
from pydrake.multibody.math import SpatialVelocity
from pydrake.multibody.plant import (
    AddMultibodyPlantSceneGraph,
    ContactModel,
    CoulombFriction,
    DiscreteContactApproximation,
    MultibodyPlant,
)
from pydrake.multibody.tree import RotationalInertia, SpatialInertia
from pydrake.systems.analysis import Simulator
from pydrake.systems.framework import DiagramBuilder

import silico_py as sp
from benchmarks import engines
from silico_py.scene import Fixture

DISSIPATION, RELAXATION_TIME = 10.0, 0.01  # of lagged [s/m], of SAP [s]
# Contact approximation and hydroelastic modulus [Pa]. Drops ask for stiffness; in the tower
# SAP is unstable with it.
SETTINGS = {
    "SAP, 1e8 Pa": (DiscreteContactApproximation.kSap, 1e8),
    "SAP, 1e15 Pa": (DiscreteContactApproximation.kSap, 1e15),
    "lagged, 1e13 Pa": (DiscreteContactApproximation.kLagged, 1e13),
}


class Engine:
    """A scene of boxes and half-spaces.

    Raises:
        ValueError: for other shapes.
    """

    NAME: ClassVar[str] = "Drake"
    ABOUT: ClassVar[str] = (
        "discrete plant, SAP solver, hydroelastic contact of boxes on a rigid floor; approximation "
        f"SAP with relaxation time {RELAXATION_TIME:g} s, or lagged with dissipation "
        f"{DISSIPATION:g} s/m"
    )
    SETTINGS: ClassVar[tuple[str, ...]] = tuple(SETTINGS)

    def __init__(self, scene: sp.Scene, state: sp.State, setting: str) -> None:
        self.scene = scene
        self.approximation, self.modulus = SETTINGS[setting]

    def path(self, state: sp.State, frequency: int, seconds: int) -> engines.Path:
        simulator, plant = self._simulator(frequency)
        _start(simulator, plant, state)
        context = plant.GetMyContextFromRoot(simulator.get_context())
        rows = []
        for k in range(frequency * seconds):
            _advance(simulator, k + 1, frequency)
            rows.append(plant.GetPositions(context))  # a body is quaternion, position
        poses = np.array(rows).reshape(len(rows), -1, 7)
        return engines.Path(poses[..., 4:], poses[..., :4])

    def timed(
        self, states: sp.State, frequency: int, seconds: int
    ) -> tuple[Callable[[], Any], float]:
        simulator, plant = self._simulator(frequency)
        starts = [engines.member(states, k) for k in range(len(states.position))]

        def run() -> None:
            for start in starts:
                _start(simulator, plant, start)
                _advance(simulator, frequency * seconds, frequency)

        return run, 0.0

    def _simulator(self, frequency: int) -> tuple[Simulator, MultibodyPlant]:
        builder = DiagramBuilder()
        plant, _ = AddMultibodyPlantSceneGraph(builder, time_step=1 / frequency)
        plant.set_contact_model(ContactModel.kHydroelastic)
        plant.set_discrete_contact_approximation(self.approximation)
        plant.mutable_gravity_field().set_gravity_vector(np.asarray(self.scene.gravity))
        friction = float(self.scene.friction)
        for k, fixture in enumerate(self.scene.environment):
            _add_floor(plant, fixture, f"floor{k}", friction)
        for body in self.scene.bodies:
            _add_body(plant, body, friction, self.modulus)
        plant.SetUseSampledOutputPorts(False)
        plant.Finalize()
        return Simulator(builder.Build()), plant


def _start(simulator: Simulator, plant: MultibodyPlant, state: sp.State) -> None:
    """Back to time zero, at a state."""
    root = simulator.get_mutable_context()
    root.SetTime(0.0)
    context = plant.GetMyMutableContextFromRoot(root)
    for k, index in enumerate(plant.GetFloatingBaseBodies()):
        body = plant.get_body(index)
        turn = Quaternion(wxyz=np.asarray(state.orientation[k], float))
        pose = RigidTransform(turn, np.asarray(state.position[k], float))
        spin = pose.rotation() @ np.asarray(state.angular_velocity[k], float)
        plant.SetFreeBodyPose(context, body, pose)
        velocity = SpatialVelocity(w=spin, v=np.asarray(state.velocity[k], float))
        plant.SetFreeBodySpatialVelocity(context, body, velocity)
    simulator.Initialize()


def _advance(simulator: Simulator, steps: int, frequency: int) -> None:
    """Advance to the state after so many steps: an update due at the very end would not be made."""
    try:
        simulator.AdvanceTo((steps - 0.5) / frequency)
    except RuntimeError as error:
        raise engines.SimulationError(str(error)) from error


def _add_floor(plant: MultibodyPlant, fixture: Fixture, name: str, friction: float) -> None:
    shape = fixture.shape
    if not isinstance(shape, sp.HalfSpace):
        raise ValueError(
            f"scene: Drake is given half-spaces as fixtures, not {type(shape).__name__}"
        )
    normal = sp.rotation.rotate(fixture.orientation, shape.normal)
    point = fixture.position + shape.offset * normal
    pose = HalfSpace.MakePose(np.asarray(normal, float), np.asarray(point, float))
    properties = ProximityProperties()
    AddRigidHydroelasticProperties(properties)
    _add_material(properties, friction)
    plant.RegisterCollisionGeometry(plant.world_body(), pose, HalfSpace(), name, properties)


def _add_body(plant: MultibodyPlant, body: sp.Body, friction: float, modulus: float) -> None:
    inertia = SpatialInertia.MakeFromCentralInertia(
        float(body.mass), np.asarray(body.center_of_mass, float), _inertia(body)
    )
    rigid = plant.AddRigidBody(body.name, inertia)
    for k, (shape, position, orientation) in enumerate(body.pieces):
        if not isinstance(shape, sp.Box):
            kind = type(shape).__name__
            raise ValueError(f"scene: expected boxes as bodies for Drake, got {kind}")
        turn = Quaternion(wxyz=np.asarray(orientation, float))
        pose = RigidTransform(turn, np.asarray(position, float))
        properties = ProximityProperties()
        AddCompliantHydroelasticProperties(
            resolution_hint=float(np.min(shape.half_extents)),
            hydroelastic_modulus=modulus,
            properties=properties,
        )
        _add_material(properties, friction)
        box = Box(2 * np.asarray(shape.half_extents, float))
        plant.RegisterCollisionGeometry(rigid, pose, box, f"{body.name}{k}", properties)


def _inertia(body: sp.Body) -> RotationalInertia:
    (xx, xy, xz), (_, yy, yz), (_, _, zz) = np.asarray(body.inertia, float)
    return RotationalInertia(Ixx=xx, Iyy=yy, Izz=zz, Ixy=xy, Ixz=xz, Iyz=yz)


def _add_material(properties: ProximityProperties, friction: float) -> None:
    AddContactMaterial(
        dissipation=DISSIPATION,
        friction=CoulombFriction(friction, friction),
        properties=properties,
    )
    properties.AddProperty("material", "relaxation_time", RELAXATION_TIME)
