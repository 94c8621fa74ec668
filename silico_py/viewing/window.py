"""A live window on a simulation, in the browser (viser)."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from typing import Any

import numpy as np

from silico_py.scene import Scene
from silico_py.simulate import Trajectory
from silico_py.validation import count, flag
from silico_py.viewing.drawing import Drawing
from silico_py.viewing.replay import Replay

REFRESH = 1 / 30  # [s]
SPEEDS = {"0.1x": 0.1, "0.25x": 0.25, "0.5x": 0.5, "1x": 1.0, "2x": 2.0, "5x": 5.0}
TOUCHING = "every touching pair"
LAST_PORT = 65_535
MARKS = 100  # failed steps marked on the slider; more would hide it


def view(
    scene: Scene,
    trajectory: Trajectory,
    host: str = "127.0.0.1",
    port: int = 8080,
    block: bool | None = None,
) -> Viewer:
    """Open a window on a simulation: a local server, and the address of its page.

    Needs viser: `pip install "silico-py[view]"`.

    Args:
        scene: the scene.
        trajectory: as `rollout` of this scene returns it.
        host: address to serve at; "0.0.0.0" lets other machines look.
        port: to serve at; the next free one if it is taken.
        block: whether to wait here until interrupted; None waits in a script, and not in an
            interactive session.

    Returns:
        The viewer, which serves until it is closed or the program ends.

    Raises:
        ImportError: without viser.
        ValueError: for what is no trajectory of one run of this scene, or has no finite pose, and
            for a port that there is not, an address that is not this machine's, or a `block` that
            is neither of the three.
    """
    if block is not None:
        flag("block", block)
    if count("port", port, least=0) > LAST_PORT:
        raise ValueError(f"port: expected 0 to {LAST_PORT}, got {port}")
    _check_host(host)
    viewer = Viewer(Replay.of(scene, trajectory), host, port)
    interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive)
    if block or (block is None and not interactive):
        viewer.wait()
    return viewer


class Viewer:
    """Plays a replay to every browser that looks.

    Attributes:
        replay: what is shown.
        server: the `viser.ViserServer`, for adding nodes of your own.
    """

    def __init__(self, replay: Replay, host: str = "127.0.0.1", port: int = 8080) -> None:
        viser = _import_viser()
        self.replay = replay
        self.server = viser.ViserServer(host=host, port=port, label="silico_py", verbose=False)
        self._drawing = Drawing(replay, self.server.scene)
        self._frame = -1
        # Re-entrant: setting the slider calls back into the viewer.
        self._lock = threading.RLock()
        self._playing = threading.Event()
        self._closed = threading.Event()
        self._drawing.see_through(True)
        self._set_camera()
        self._add_controls()
        self.show(0)
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{self.server.get_host()}:{self.server.get_port()}"

    @property
    def frame(self) -> int:
        """The frame shown."""
        return self._frame

    def show(self, frame: int) -> None:
        """Show a frame.

        Raises:
            ValueError: for a frame that does not exist.
        """
        if not 0 <= frame < self.replay.frames:
            raise ValueError(f"frame: must be in 0 ... {self.replay.frames - 1}, got {frame}")
        with self._lock, self.server.atomic():
            self._frame = int(frame)
            self._slider.value = self._frame
            self._redraw()

    def play(self) -> None:
        """Play from the current frame, or from the start if it is the last."""
        if self._frame == self.replay.frames - 1:
            self.show(0)
        self._playing.set()
        self._button.label = "Pause"

    def pause(self) -> None:
        """Stop playing."""
        self._playing.clear()
        self._button.label = "Play"

    def wait(self) -> None:
        """Serve until interrupted (Ctrl-C) or closed, then close."""
        print(f"{self.url} shows the simulation until Ctrl-C", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            self._closed.wait()
        self.close()

    def close(self) -> None:
        """Stop the server."""
        if not self._closed.is_set():
            self._closed.set()
            self._playing.set()  # wakes the thread that plays, so that it can end
            self.server.stop()

    def __repr__(self) -> str:
        return f"Viewer({self.url})"

    def _set_camera(self) -> None:
        camera, replay = self.server.initial_camera, self.replay
        camera.fov = np.radians(45)
        distance = replay.radius / np.sin(camera.fov / 2)
        camera.near, camera.far = replay.radius / 200, 200 * replay.radius
        camera.position = replay.center + distance * replay.view_direction
        camera.look_at = replay.center

    def _add_controls(self) -> None:
        gui, replay = self.server.gui, self.replay
        self._banner = gui.add_markdown("")
        self._button = gui.add_button("Play")
        marks = tuple(sorted(replay.notes)[:MARKS])
        self._slider = gui.add_slider("Step", 0, replay.frames - 1, 1, 0, marks=marks)
        self._speed = gui.add_dropdown("Speed", tuple(SPEEDS), initial_value="1x")
        self._points = gui.add_checkbox("Contact points", True)
        self._forces = gui.add_checkbox("Forces", True)
        self._glass = gui.add_checkbox("See-through bodies", True)
        self._scaled = gui.add_checkbox("α-scaled sets", False)
        choices = (TOUCHING, *dict.fromkeys(replay.contacts.names))
        self._which = gui.add_dropdown("of", choices, visible=False)
        self._connect()

    def _connect(self) -> None:
        self._button.on_click(lambda _: self.pause() if self._playing.is_set() else self.play())
        self._slider.on_update(self._scrubbed)
        self._glass.on_update(lambda _: self._drawing.see_through(self._glass.value))
        for control in (self._points, self._forces, self._scaled, self._which):
            control.on_update(self._toggled)

    def _scrubbed(self, _: Any) -> None:
        with self._lock:
            frame = min(int(self._slider.value), self.replay.frames - 1)
            # Equal when it was this viewer, not a person, that moved the slider.
            if frame != self._frame:
                self.pause()
                self.show(frame)

    def _toggled(self, _: Any) -> None:
        with self._lock, self.server.atomic():
            self._which.visible = self._scaled.value
            self._redraw()

    def _redraw(self) -> None:
        self._drawing.show(self._frame, self._points.value, self._forces.value)
        self._drawing.show_scaled(self._frame, self._chosen())
        note = self.replay.notes.get(self._frame)
        text = self.replay.time_text(self._frame)
        self._banner.content = f"## ⚠️ {note}\n{text}" if note else text

    def _chosen(self) -> np.ndarray:
        """Contacts whose scaled sets are wanted."""
        if not self._scaled.value:
            return np.zeros(0, int)
        if self._which.value == TOUCHING:
            return self.replay.touching(self._frame)
        names = np.array(self.replay.contacts.names)
        return np.flatnonzero(names == self._which.value)

    def _run(self) -> None:
        """Advance while playing; the thread of the viewer."""
        while self._playing.wait() and not self._closed.is_set():
            time_shown, last = self._frame * self.replay.timestep, time.perf_counter()
            while self._playing.is_set() and not self._closed.wait(REFRESH):
                now = time.perf_counter()
                time_shown += (now - last) * SPEEDS[self._speed.value]
                last = now
                self._advance_to(int(time_shown / self.replay.timestep + 1e-6))

    def _advance_to(self, frame: int) -> None:
        with self._lock:
            # A person may have paused while this thread waited.
            if not self._playing.is_set() or self._closed.is_set():
                return
            last = self.replay.frames - 1
            if frame != self._frame:
                self.show(min(frame, last))
            if self._frame == last:
                self.pause()


def _check_host(host: str) -> None:
    """viser would wait for ever for a server that cannot start."""
    try:
        family, *_, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.create_server(address, family=family):
            pass
    except (OSError, TypeError, UnicodeError) as error:
        raise ValueError(f"host: nothing can be served at {host!r} ({error})") from error


def _import_viser() -> Any:
    try:
        import viser
    except ImportError as error:
        raise ImportError('view needs viser: pip install "silico-py[view]"') from error
    return viser
