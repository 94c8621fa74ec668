"""Libraries of the extra `models`, imported when they are first used."""

from __future__ import annotations

import importlib
from typing import Any


class Library:
    """A module that is imported at its first attribute.

    Raises:
        ImportError: then, saying what to install.
    """

    def __init__(self, name: str, requirement: str) -> None:
        self._name = name
        self._requirement = requirement

    def __getattr__(self, attribute: str) -> Any:
        try:
            module = importlib.import_module(self._name)
        except ImportError as error:
            raise ImportError(
                f"{self._name} is not installed; pip install '{self._requirement}'"
            ) from error
        return getattr(module, attribute)


mujoco = Library("mujoco", "silico-py[models]")
trimesh = Library("trimesh", "silico-py[models]")
coacd = Library("coacd", "coacd")
