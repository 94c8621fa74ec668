"""Stepping: one step, and rollouts."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from silico_py import rotation
from silico_py.assembly import ContactBatch, assemble
from silico_py.broad_phase import Separation
from silico_py.compilation import jitted
from silico_py.contact import Contact, Formulation, Touch
from silico_py.friction import project
from silico_py.integrator import Motion, next_pose
from silico_py.options import SolverOptions, or_default
from silico_py.primitives._base import safe_unit
from silico_py.scene import Scene, State, check_state
from silico_py.solver import (
    Guess,
    Options,
    Problem,
    Solution,
    Status,
    Variables,
    implicit,
    solve,
)
from silico_py.validation import vector
from silico_py.warm_start import Remembered, recall, remember


class ContactInfo(NamedTuple):
    """The contacts of one step, in the order of `scene.pairs`.

    Of a pair that `SolverOptions.max_contacts` leaves out alpha is a lower bound; the force is 0.

    Attributes:
        alpha: relaxed scaling, less what the relaxation is sure to add. It lies above the exact
            one (`collide`) by 0 where round surfaces or faces meet, by some rho where corners do.
            Of two shapes more than 10:1 in size the larger grows as if it were ten times as large.
        point: contact point, world [m].
        normal: unit vector from b to a, world; zero where `collide` has none.
        force: total contact force on a, world [N]; the one on b is its opposite.
    """

    alpha: Float[Array, " contacts"]
    point: Float[Array, "contacts 3"]
    normal: Float[Array, "contacts 3"]
    force: Float[Array, "contacts 3"]


class Info(NamedTuple):
    """What a step says about itself.

    Attributes:
        converged: whether both tolerances were met, and no contact was left out that may push;
            False makes the state a best effort.
        status: a `silico_py.solver.Status`.
        iterations: Newton steps.
        residual: largest scaled residual row.
        complementarity: largest error of s o z = rho e.
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


class Trajectory(NamedTuple):
    """States after each step and their infos, stacked over time."""

    state: State
    info: Info


def step(
    scene: Scene,
    state: State,
    control: Any = None,
    options: SolverOptions | None = None,
    guess: Remembered | None = None,
) -> tuple[State, Info]:
    """Advance one time step.

    Args:
        scene: the scene; may be traced, batched and differentiated like any pytree.
        state: the current state.
        control: (n, 6) force [N] and torque [N m] at the centre of mass, world frame; for
            directions in which a body has stiffness, the commanded displacement [m, rad] in
            this step instead.
        options: relaxation and limits.
        guess: `info.guess` of the step before, or `no_guess` at the first one of a loop. The
            search is first tried from what the last three solutions lead on to: that takes a
            third of the iterations, and none at rest. `rollout` does this by itself.

    Returns:
        The next state and an `Info`. A step that does not converge returns its best finite
        iterate and says so in `info.converged`.

    Raises:
        ValueError: for a state that does not fit the scene, whose quaternions are not unit ones
            or whose precision is not the scene's, a control of the wrong shape or not finite, or a
            relaxation that the state's precision cannot carry.
    """
    options = checked(options, scene, state)
    return _step(scene, state, checked_control(scene, state, control), options, guess)


@jitted
def _step(
    scene: Scene,
    state: State,
    control: Array,
    options: SolverOptions,
    guess: Remembered | None,
) -> tuple[State, Info]:
    motions = motions_of(scene, state, control)
    relaxation = jnp.asarray(options.relaxation, state.position.dtype)
    problem, start, batches = assembled(scene, motions, relaxation, options)
    if options.gradient_relaxation is None:
        solution, following = _solved(problem, start, batches, relaxation, options, guess)
        variables = implicit(problem, solution.variables, relaxation)
    else:
        solution, variables, following = _smoothed(scene, motions, relaxation, options, guess)
    solution = solution._replace(variables=variables)
    info = info_of(batches, solution, following, options.formulation)
    return next_state(motions, arms(scene), solution.variables.y), info


@overload
def rollout(
    scene: Scene,
    state: State,
    controls: Any,
    options: SolverOptions | None = ...,
    guess: Remembered | None = ...,
    with_guess: Literal[False] = ...,
) -> Trajectory: ...


@overload
def rollout(
    scene: Scene,
    state: State,
    controls: Any,
    options: SolverOptions | None = ...,
    guess: Remembered | None = ...,
    *,
    with_guess: Literal[True],
) -> tuple[Trajectory, Remembered | None]: ...


def rollout(
    scene: Scene,
    state: State,
    controls: Any,
    options: SolverOptions | None = None,
    guess: Remembered | None = None,
    with_guess: bool = False,
) -> Trajectory | tuple[Trajectory, Remembered | None]:
    """Step repeatedly with `lax.scan`.

    With `options.warm_start` each step is first tried from the solutions of those before.

    Args:
        scene: the scene.
        state: the initial state.
        controls: a number of steps, or controls (steps, n, 6).
        options: relaxation and limits.
        guess: what the first step is tried from: the guess of an earlier part of the same motion.
        with_guess: also return the guess that the last step leaves for a part to come; None
            without `options.warm_start`.

    Returns:
        A `Trajectory`, or with `with_guess` that and the guess.

    Raises:
        ValueError: as `step`, for controls of the wrong shape or not finite, and for a guess
            without `options.warm_start`.
    """
    options, n = checked(options, scene, state), len(scene.bodies)
    if np.ndim(controls) == 0:
        if not isinstance(controls, (int, np.integer)) or controls < 0:
            raise ValueError(
                f"controls: expected a number of steps, or an array (steps, n, 6), got {controls!r}"
            )
        controls = jnp.zeros((int(controls), n, 6), state.position.dtype)
    steps = np.shape(controls)[0]
    controls = vector("controls", controls, steps, n, 6)
    if guess is not None and not options.warm_start:
        raise ValueError("guess: options.warm_start is off; turn it on or leave the guess out")
    trajectory, last = _rollout(scene, state, controls, options, guess)
    return (trajectory, last) if with_guess else trajectory


@jitted
def _rollout(
    scene: Scene,
    state: State,
    controls: Array,
    options: SolverOptions,
    guess: Remembered | None,
) -> tuple[Trajectory, Remembered | None]:
    def advance(before: tuple, control: Array) -> tuple[tuple, Trajectory]:
        following, info = _step(scene, before[0], control, options, before[1])
        return (following, info.guess), Trajectory(following, info._replace(guess=None))

    if guess is None and options.warm_start:
        guess = no_guess(scene, state, options)
    (_, last), trajectory = jax.lax.scan(advance, (state, guess), controls)
    return trajectory, last


def no_guess(scene: Scene, state: State, options: SolverOptions | None = None) -> Remembered:
    """What stands for `Info.guess` before the first step of a loop; nothing is tried from it."""
    options = or_default(options)
    copies = () if options.gradient_relaxation is None else (2,)

    def like() -> Remembered:
        motions = motions_of(scene, state, checked_control(scene, state, None))
        rho = jnp.asarray(options.relaxation, state.position.dtype)
        _, start, batches = assembled(scene, motions, rho, options)
        return remember(start, jnp.zeros((), bool), batches)

    return jax.tree.map(lambda v: jnp.zeros((*copies, *v.shape), v.dtype), jax.eval_shape(like))


def assembled(
    scene: Scene, motions: Motion, relaxation: Float[Array, ""], options: SolverOptions
) -> tuple[Problem, Variables, list[ContactBatch]]:
    """`assemble` as the options say."""
    return assemble(scene, motions, relaxation, options.formulation, options.contact_limits)


def checked(options: SolverOptions | None, scene: Scene, state: State) -> SolverOptions:
    """The options, or the default ones, if the state fits the scene and carries them."""
    options = or_default(options)
    check_state(scene, state)
    options.check_precision(state.position.dtype)
    return options


def checked_control(scene: Scene, state: State, control: Any) -> Float[Array, "n 6"]:
    """The control as an array; none is zero."""
    n, dtype = len(scene.bodies), state.position.dtype
    if control is None:
        return jnp.zeros((n, 6), dtype)
    return vector("control", control, n, 6).astype(dtype)


def _solved(
    problem: Problem,
    start: Variables,
    batches: list[ContactBatch],
    relaxation: Float[Array, ""],
    options: SolverOptions,
    guess: Remembered | None,
) -> tuple[Solution, Remembered | None]:
    """The solution, and what the next step may be tried from if this one was given a guess."""
    known = recall(guess, start, batches)
    if known is None:
        return search(problem, start, relaxation, options), None
    solution = search(problem, start, relaxation, options, known.guess)
    return solution, remember(solution.variables, solution.converged, batches, known)


def _smoothed(
    scene: Scene,
    motions: Motion,
    relaxation: Float[Array, ""],
    options: SolverOptions,
    guess: Remembered | None,
) -> tuple[Solution, Variables, Remembered | None]:
    """The solution at `relaxation`, and its variables with the derivatives of the smoother one."""
    smooth = jnp.asarray(options.gradient_relaxation, relaxation.dtype)

    def solved(at: tuple[Float[Array, ""], Remembered | None]) -> tuple[Any, ...]:
        rho, guess = at
        return _solved(*assembled(scene, motions, rho, options), rho, options, guess)

    # One program for both relaxations.
    both = jax.lax.stop_gradient(jnp.stack([relaxation, smooth]))
    found, following = jax.lax.map(solved, (both, guess))
    solution, point = (jax.tree.map(lambda v, k=k: v[k], found) for k in (0, 1))
    problem, _, _ = assembled(scene, motions, smooth, options)
    variables = implicit(problem, solution.variables, smooth, point.variables)
    return solution, variables, following


def search(
    problem: Problem,
    start: Variables,
    relaxation: Float[Array, ""],
    options: SolverOptions,
    guess: Guess | None = None,
    accept: bool = False,
) -> Solution:
    """The solution without derivatives, residuals to a tenth of the relaxation."""
    problem = problem.with_data(jax.lax.stop_gradient(problem.data))
    start, rho, guess = jax.lax.stop_gradient((start, relaxation, guess))
    # Without contacts nothing is relaxed, so nothing excuses a residual.
    exact = jnp.asarray(100 * jnp.finfo(rho.dtype).eps, rho.dtype)
    tolerance = rho / 10 if problem.groups else exact
    limits = Options(rho, tolerance, options.max_iterations, options.polish, accept)
    return solve(problem, start, limits, guess)


def motions_of(scene: Scene, state: State, control: Float[Array, "n 6"]) -> Motion:
    """Bodies in the frame of their centres of mass."""
    n = len(scene.bodies)
    dtype = state.position.dtype
    mass = jnp.stack([body.mass for body in scene.bodies])
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
    batches: list[ContactBatch],
    solution: Solution,
    guess: Remembered | None,
    formulation: Formulation,
) -> Info:
    """What a solution says about its step."""
    y = solution.variables.y
    parts, complete = [], jnp.ones((), bool)
    for batch, cell in zip(batches, solution.variables.cells, strict=True):
        read = jax.vmap(lambda *at: _contact_info(formulation.touch(*at), at[-1]))
        part = read(y[batch.touched], cell.x, cell.dual, batch.contacts)
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
    converged = solution.converged
    return Info(
        converged & complete,
        jnp.where(converged & ~complete, Status.INCOMPLETE, solution.status),
        solution.iterations,
        solution.residual,
        solution.complementarity,
        contacts,
        guess,
    )


def _among_all(part: ContactInfo, end: Separation, chosen: Int[Array, " contacts"]) -> ContactInfo:
    """The contacts that were chosen, among all pairs of their kind."""
    apart = ContactInfo(end.alpha, end.point, end.normal, jnp.zeros_like(end.point))
    return jax.tree.map(lambda v, own: v.at[chosen].set(own), apart, part)


def _contact_info(touch: Touch, c: Contact) -> ContactInfo:
    tangential = project(touch.normal, touch.beta[1:])
    force = c.impulse * (touch.gamma * touch.normal_a + tangential) / c.a.motion.timestep
    return ContactInfo(touch.alpha, touch.point, safe_unit(touch.normal), force)
