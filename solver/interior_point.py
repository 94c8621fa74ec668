"""Primal-dual interior point for the problems of `problem.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from silico_py.solver.kkt import newton_directions
from silico_py.solver.problem import Problem, Residual, Variables, residual, residual_norm


@dataclass(frozen=True)
class Method:
    boundary: float = 0.95
    exponent: float = 2.0
    floor: float = 0.0  # centring not below this fraction of the residual
    patience: int = 30
    hold: float = 0.0
    slack: float = 1.0
    nbhd: float = 0.0


class Result(NamedTuple):
    w: Variables
    converged: Bool[Array, ""]
    iterations: Int[Array, ""]
    residual: Float[Array, ""]
    complementarity: Float[Array, ""]


def _degree(problem):
    return sum(g.cone.degree * len(g.nodes) for g in problem.groups)


def _dot(problem, w):
    return sum(jnp.sum(c.slack * c.dual) for c in w.cells)


def average_complementarity(problem, w):
    return _dot(problem, w) / _degree(problem)


def violation(problem, w, target):
    parts = []
    for g, c in zip(problem.groups, w.cells, strict=True):
        e = g.cone.identity(c.dual.dtype)
        parts.append(jnp.max(jnp.abs(g.cone.product(c.slack, c.dual) - target * e)))
    return jnp.max(jnp.stack(parts)) if parts else jnp.zeros(())


def boundary_step(problem, w, d):
    parts = [jnp.asarray(jnp.inf)]
    for g, c, dc in zip(problem.groups, w.cells, d.cells, strict=True):
        parts.append(jnp.min(g.cone.step_length(c.slack, dc.slack)))
        parts.append(jnp.min(g.cone.step_length(c.dual, dc.dual)))
    return jnp.min(jnp.stack(parts))


def move(w, d, t):
    return jax.tree.map(lambda a, b: a + t * b, w, d)


def solve(problem: Problem, start: Variables, rho, tol, max_iterations=30, method=Method(), trace=False):
    ctol = tol

    def measures(w):
        r = residual(problem, w)
        return r, residual_norm(problem, r), violation(problem, w, rho)

    def cond(carry):
        w, r, rn, cv, it, done = carry
        return (~done) & (it < max_iterations)

    def body(carry):
        w, r, rn, cv, it, _ = carry
        dirs = newton_directions(problem, w, r)
        col = lambda i: jax.tree.map(lambda v: v[..., i], dirs)
        affine = jax.tree.map(lambda v: v[..., 0], dirs)
        mu = average_complementarity(problem, w)
        t_aff = jnp.minimum(1.0, boundary_step(problem, w, affine))
        mu_aff = average_complementarity(problem, move(w, affine, t_aff))
        sigma = jnp.clip(mu_aff / mu, 0, 1) ** method.exponent
        target = jnp.maximum(sigma * mu, rho)
        if method.floor:
            target = jnp.maximum(target, jnp.minimum(method.floor * rn, mu))
        eta = 1 - method.hold * sigma
        d = jax.tree.map(lambda v: v[..., 0] + target * v[..., 1], dirs)
        t = jnp.minimum(1.0, method.boundary * boundary_step(problem, w, d))

        def ls_cond(c):
            k, t, w2, r2, rn2, cv2, ok = c
            return (~ok) & (k < 10)

        def ls_body(c):
            k, t, *_ = c
            w2 = move(w, d, t)
            r2, rn2, cv2 = measures(w2)
            ok = (rn2 < method.slack*rn) | (cv2 < method.slack*cv)
            return k + 1, jnp.where(ok, t, t / 2), w2, r2, rn2, cv2, ok

        k, t, w2, r2, rn2, cv2, ok = jax.lax.while_loop(
            ls_cond, ls_body, (0, t, w, r, rn, cv, jnp.asarray(False)))
        done = (rn2 <= tol) & (cv2 <= ctol)
        if trace:
            jax.debug.print("{} t={:.3f} k={} rn={:.2e} cv={:.2e} mu={:.2e} tgt={:.2e} taff={:.3f}", it, t, k, rn2, cv2, mu, target, t_aff)
        return w2, r2, rn2, cv2, it + 1, done

    r, rn, cv = measures(start)
    init = (start, r, rn, cv, jnp.asarray(0), (rn <= tol) & (cv <= ctol))
    w, r, rn, cv, it, done = jax.lax.while_loop(cond, body, init)
    return Result(w, done, it, rn, cv)
