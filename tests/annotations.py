"""What jaxtyping's import hook asks of functions: that arrays have the shapes of their annotations.

All other annotations are left to mypy: many are types that no value has while jax traces.
"""

from types import UnionType

from beartype import beartype
from jaxtyping import AbstractArray


def checked(function):
    """The function with its annotations of arrays checked at every call."""
    annotations = getattr(function, "__annotations__", {})
    # Fields of dataclasses hold whatever jax puts in their place.
    if function.__name__ == "__init__" or not annotations:
        return function
    arrays = {name: _evaluated(text, function) for name, text in annotations.items()}
    function.__annotations__ = {name: a for name, a in arrays.items() if _is_of_arrays(a)}
    return beartype(function)


def _evaluated(annotation, function):
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, function.__globals__)
    except NameError:  # of a class inside a function
        return None


def _is_of_arrays(annotation):
    if isinstance(annotation, UnionType):
        return all(
            _is_of_arrays(part) or part in (type(None), float) for part in annotation.__args__
        )
    return isinstance(annotation, type) and issubclass(annotation, AbstractArray)
