"""One step: the problem of a state, the search for its solution, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from silico_py import rotation
from silico_py.assembly import Batch, assemble
from silico_py.broad_phase import Limits, Separation
from silico_py.contact import Contact, Formulation, Touch
from silico_py.friction import impulses
from silico_py.integrator import Motion, dynamics, next_pose
from silico_py.options import SolverOptions
from silico_py.scene import Scene, State, check_precision
from silico_py.solver import Guess, Options, Problem, Solution, Variables, compact, solve
from silico_py.solver.dense import safe_unit, taken
from silico_py.solver.rows import each
from silico_py.status import Status
from silico_py.warm_start import Remembered, guess_of, recall, remember


class ContactInfo(NamedTuple):
    """The contacts of one step, in the order of `scene.pairs`.

    Of a pair that `SolverOptions.max_contacts` leaves out alpha is a lower bound; the force is 0.

    Attributes:
        alpha: relaxed scaling, less what the relaxation usually adds. It lies above the exact
            one (`collide`) by 0 where round surfaces or faces meet, by some rho where corners do;
            of a Minkowski sum it may be 1 rho less.
            Of two shapes more than 10:1 in size the larger grows as if it were ten times as large.
            NaN where a collision program of the bilevel method was not solved.
        point: contact point, world [m].
        normal: unit vector from b to a, world; zero where `collide` has none.
        force: total contact force on a, world [N]; the one on b is its opposite.
        torque: that of friction on a that resists turns, world [N m]; the one on b is its opposite.
            None in scenes without it.
    """

    alpha: Float[Array, " contacts"]
    point: Float[Array, "contacts 3"]
    normal: Float[Array, "contacts 3"]
    force: Float[Array, "contacts 3"]
    torque: Float[Array, "contacts 3"] | None = None


class Info(NamedTuple):
    """What a step says about itself.

    Attributes:
        converged: whether both tolerances were met, all contacts were located, and none was left
            out that may push; False makes the state a best effort.
        status: a `Status`.
        iterations: Newton steps, those of the solution that is differentiated included.
        residual: largest residual row of the step itself, dimensionless: momenta are divided by
            those of the body at the unit of speed, or at half its speed if that is more.
        complementarity: largest error of s o z = rho e, of the step itself.
        contacts: forces and geometry.
        guess: the last solutions, for the next step to be tried from; None where `step` was given
            none.
    """

    converged: Bool[Array, ""]
    status: Int[Array, ""]
    iterations: Int[Array, ""]
    residual: Float[Array, ""]
    complementarity: Float[Array, ""]
    contacts: ContactInfo
    guess: Remembered | None


class StepProblem(NamedTuple):
    """A step before its search.

    Attributes:
        motions: the bodies before it.
        arm: centres of mass in the body frames [m].
        problem: what is to be solved.
        start: where to set out without a guess.
        batches: the contacts behind each group of cells.
        known: the solutions of the steps before.
        guess: what they suggest for this one.
    """

    motions: Motion
    arm: Float[Array, "n 3"]
    problem: Problem
    start: Variables
    batches: list[Batch[Contact]]
    known: Remembered | None
    guess: Guess | None


def begin(
    scene: Scene,
    state: State,
    control: Float[Array, "n 6"],
    relaxation: Float[Array, ""],
    guess: Remembered | None,
    options: SolverOptions,
) -> StepProblem:
    """The step from here, at this relaxation."""
    check_precision(scene)
    prepare = partial(_begun, options.formulation, options.contact_limits)
    return as_part(options, prepare)(scene, state, control, relaxation, guess)


def _begun(
    formulation: Formulation,
    limits: Limits,
    scene: Scene,
    state: State,
    control: Float[Array, "n 6"],
    relaxation: Float[Array, ""],
    guess: Remembered | None,
) -> StepProblem:
    motions = motions_of(scene, state, control)
    problem, start, batches = assemble(scene, motions, relaxation, formulation, limits)
    known = recall(guess, start, batches)
    tried = None if known is None else guess_of(known, batches)
    return StepProblem(motions, arms(scene), problem, start, batches, known, tried)


def solved(
    begun: StepProblem,
    relaxation: Float[Array, ""],
    options: SolverOptions,
    start: Variables | None = None,
    accept: bool = False,
) -> Solution:
    """The solution without derivatives, residuals to a tenth of the relaxation; another `start` may
    be given."""
    start = begun.start if start is None else start
    problem = begun.problem.with_data(jax.lax.stop_gradient(begun.problem.data))
    start, rho, guess = jax.lax.stop_gradient((start, relaxation, begun.guess))
    tolerance = rho / 10 if problem.groups else _rounding(begun)
    limits = Options(rho, tolerance, options.max_iterations, options.polish, accept)
    return solve(problem, start, limits, guess)


def _rounding(begun: StepProblem) -> Float[Array, ""]:
    """Tolerance without contacts: nothing is relaxed then, so nothing but rounding excuses a
    residual."""
    given = each(dynamics)(begun.start.y, begun.motions)  # all that y has to balance
    largest = jnp.max(jnp.abs(given) / begun.problem.node_scale)
    return jax.lax.stop_gradient(100 * jnp.finfo(largest.dtype).eps * (1 + largest))


def end(
    begun: StepProblem, solution: Solution, options: SolverOptions, kept: Remembered | None = None
) -> tuple[State, Info]:
    """The next state and its `Info`, whose guess is `kept` if that is given; otherwise it is made
    of this solution, if the step itself was given a guess."""
    return as_part(options, partial(_ended, options.formulation))(begun, solution, kept)


def _ended(
    formulation: Formulation, begun: StepProblem, solution: Solution, kept: Remembered | None
) -> tuple[State, Info]:
    kept = left_by(begun, solution) if kept is None else kept
    info = info_of(begun.batches, solution, kept, formulation)
    return next_state(begun.motions, begun.arm, solution.variables.y), info


def left_by(begun: StepProblem, solution: Solution) -> Remembered | None:
    """The guess for the next step, if this one was given a guess itself."""
    if begun.known is None:
        return None
    return remember(solution.variables, solution.converged, begun.batches, begun.known)


def as_part(options: SolverOptions, function: Callable) -> Callable:
    """`function`, `compact` where that is possible: not where the nearest contacts are chosen."""
    fits = options.formulation.fusible and options.contact_limits == (None, None)
    return compact(function) if fits else function


def motions_of(scene: Scene, state: State, control: Float[Array, "n 6"]) -> Motion:
    """Bodies in the frame of their centres of mass."""
    n = len(scene.bodies)
    dtype = state.position.dtype
    mass = jnp.stack([body.mass for body in scene.bodies])
    # No derivative may depend on the length of a quaternion.
    state = replace(state, orientation=rotation.normalize(state.orientation))
    position, velocity = shift(state, arms(scene))
    stiffness = jnp.stack([body.stiffness for body in scene.bodies]).astype(dtype)
    weight = jnp.concatenate([mass[:, None] * scene.gravity, jnp.zeros((n, 3), dtype)], axis=1)
    force, command = split_control(control, stiffness)
    # A position-controlled direction is compensated for gravity.
    force += split_control(weight, stiffness)[0]
    return Motion(
        position=position,
        orientation=state.orientation,
        velocity=velocity,
        angular_velocity=state.angular_velocity,
        force=force[:, :3],
        torque=force[:, 3:],
        stiffness=stiffness,
        command=command,
        memory=jnp.array([not body.quasi_dynamic for body in scene.bodies], dtype),
        mass=mass,
        inertia=jnp.stack([body.inertia for body in scene.bodies]),
        timestep=jnp.broadcast_to(scene.timestep, (n,)),
    )


def split_control(control: Array, stiffness: Array) -> tuple[Array, Array]:
    """Control as (force, commanded displacement): the latter where there is stiffness."""
    held = stiffness > 0
    return jnp.where(held, 0, control), jnp.where(held, control, 0)


def shift(state: State, arm: Float[Array, "*n 3"]) -> tuple[Array, Array]:
    """Position and velocity of the point at `arm` (body frame) of each body."""
    offset = rotation.rotate(state.orientation, arm)
    sweep = rotation.rotate(state.orientation, rotation.cross(state.angular_velocity, arm))
    return state.position + offset, state.velocity + sweep


def next_state(motions: Motion, arm: Float[Array, "*n 3"], y: Float[Array, "*n 6"]) -> State:
    """The state after moving with y; `arm` is the centre of mass in the body frame."""
    position, orientation = next_pose(y, motions)
    moved = State(position, rotation.normalize(orientation), y[..., :3], y[..., 3:])
    position, velocity = shift(moved, -arm)
    return State(position, moved.orientation, velocity, moved.angular_velocity)


def arms(scene: Scene) -> Float[Array, "n 3"]:
    """Centres of mass in the body frames."""
    return jnp.stack([body.center_of_mass for body in scene.bodies])


def info_of(
    batches: list[Batch[Contact]],
    solution: Solution,
    guess: Remembered | None,
    formulation: Formulation,
) -> Info:
    """What a solution says about its step."""
    y = solution.variables.y
    parts, complete, located = [], jnp.ones((), bool), jnp.ones((), bool)
    for batch, cell in zip(batches, solution.variables.cells, strict=True):
        read = each(lambda *at: _contact_info(formulation.touch(*at), at[-1]))
        part = read(taken(y, batch.touched), cell.x, cell.dual, batch.contacts)
        part = part._replace(point=batch.anchors + part.point)
        located &= jnp.all(jnp.isfinite(part.alpha))
        if batch.candidates is not None:
            part = _among_all(part, batch.candidates.at_end(y), batch.candidates.chosen)
            complete &= batch.candidates.complete(part.alpha)
        parts.append(part)
    order = np.argsort(np.concatenate([batch.indices for batch in batches] or [[]]).astype(int))
    if parts:
        contacts = jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[order], *parts)
    else:
        empty = jnp.zeros((0, 3), y.dtype)
        contacts = ContactInfo(empty[:, 0], empty, empty, empty)
    converged, known = solution.converged, complete & located
    short = jnp.where(located, Status.INCOMPLETE, Status.UNLOCATED)
    return Info(
        converged & known,
        jnp.where(converged & ~known, short, solution.status),
        solution.iterations,
        solution.residual,
        solution.complementarity,
        contacts,
        guess,
    )


def _among_all(part: ContactInfo, end: Separation, chosen: Int[Array, " contacts"]) -> ContactInfo:
    """The contacts that were chosen, among all pairs of their kind."""
    nothing = jnp.zeros_like(end.point)
    torque = None if part.torque is None else nothing
    apart = ContactInfo(end.alpha, end.point, end.normal, nothing, torque)
    return jax.tree.map(lambda v, own: v.at[chosen].set(own), apart, part)


def _contact_info(touch: Touch, c: Contact) -> ContactInfo:
    tangential, turning = impulses(touch.normal, touch.beta, c.radii)
    unit = c.impulse / c.a.motion.timestep
    force = unit * (touch.gamma * touch.normal_a + tangential)
    torque = None if turning is None else unit * turning
    return ContactInfo(touch.alpha, touch.point, safe_unit(touch.normal), force, torque)
