"""Primal-dual interior point for the problems of `problem.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from silico_py.solver.kkt import newton_directions
from silico_py.solver.problem import Problem, Residual, Variables, residual, residual_norm


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


@dataclass(frozen=True)
class Method:
    boundary: float = 0.95
    exponent: float = 2.0
    coupling: float = 1.0
    second: float = 0.0
    budget: int = 30

METHODS = (Method(budget=14), Method(.8, 1.0, 0.0), )
STALL = [0.1, 2]

def solve(problem: Problem, start: Variables, rho, tol, max_iterations=30, methods=METHODS, trace=False):
    ctol = tol
    if isinstance(methods, Method): methods = (methods,)
    table = {k: jnp.array([getattr(m, k) for m in methods]) for k in ('boundary','exponent','coupling','budget')}
    last = len(methods) - 1
    r0 = residual(problem, start)
    rn0, cv0 = residual_norm(problem, r0), violation(problem, start, rho)
    mu0 = average_complementarity(problem, start)

    def measures(w):
        r = residual(problem, w)
        return r, residual_norm(problem, r), violation(problem, w, rho)

    def cond(carry):
        w, r, rn, cv, it, done, *_ = carry
        return (~done) & (it < max_iterations)

    def body(carry):
        w, r, rn, cv, it, _, m, k, stall = carry
        boundary, exponent, coupling, budget = (table[n][m] for n in ('boundary','exponent','coupling','budget'))
        dirs = newton_directions(problem, w, r, coupling)
        affine = jax.tree.map(lambda v: v[..., 0], dirs)
        mu = average_complementarity(problem, w)
        t_aff = jnp.minimum(1.0, boundary_step(problem, w, affine))
        mu_aff = average_complementarity(problem, move(w, affine, t_aff))
        sigma = jnp.clip(mu_aff / mu, 0, 1) ** exponent
        target = jnp.maximum(sigma * mu, rho)
        d = jax.tree.map(lambda v: v[..., 0] + target * v[..., 1], dirs)
        t = jnp.minimum(1.0, boundary * boundary_step(problem, w, d))

        def ls_cond(c):
            j, t, w2, r2, rn2, cv2, ok = c
            return (~ok) & (j < 6)

        def ls_body(c):
            j, t, *_ = c
            w2 = move(w, d, t)
            r2, rn2, cv2 = measures(w2)
            ok = (rn2 < rn) | (cv2 < cv)
            return j + 1, jnp.where(ok, t, t / 2), w2, r2, rn2, cv2, ok

        j, t, w2, r2, rn2, cv2, ok = jax.lax.while_loop(
            ls_cond, ls_body, (0, t, w, r, rn, cv, jnp.asarray(False)))
        done = (rn2 <= tol) & (cv2 <= ctol)
        if trace:
            jax.debug.print("{} m={} t={:.3f} j={} rn={:.2e} cv={:.2e} mu={:.2e} tgt={:.2e} taff={:.3f}", it, m, t, j, rn2, cv2, mu, target, t_aff)
        stall = jnp.where(t < STALL[0], stall + 1, 0)
        give_up = ((stall >= STALL[1]) | (k + 1 >= budget)) & (m < last) & ~done
        pick = lambda a, b: jax.tree.map(lambda x, y: jnp.where(give_up, x, y), a, b)
        w2, r2, rn2, cv2 = pick((start, r0, rn0, cv0), (w2, r2, rn2, cv2))
        return (w2, r2, rn2, cv2, it + 1, done, jnp.where(give_up, m + 1, m), jnp.where(give_up, 0, k + 1), jnp.where(give_up, 0, stall))

    zero = jnp.asarray(0)
    init = (start, r0, rn0, cv0, zero, (rn0 <= tol) & (cv0 <= ctol), zero, zero, zero)
    w, r, rn, cv, it, done, m, *_ = jax.lax.while_loop(cond, body, init)
    return Result(w, done, it, rn, cv)
