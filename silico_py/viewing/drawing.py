"""One frame of a replay as nodes of a viser scene."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from silico_py.viewing.meshes import PieceMesh, Plane
from silico_py.viewing.replay import Replay, body_color

FLOOR, GRID, FIXTURE = (230, 232, 234), (185, 192, 200), (139, 149, 161)
POINT, FORCE, SHELL = (29, 29, 31), (214, 51, 108), (242, 169, 0)
GLASS = 0.6  # opacity of see-through bodies
NOTHING = np.zeros((0, 2, 3))


class Drawing:
    """The nodes of a viser scene that show a replay.

    `/bodies/NAME` move, `/environment` stands still, `/contacts/points`, `/contacts/forces` and
    `/scaled` (the shapes scaled by alpha) change with every frame. A slash in a name is `%2F`.

    Args:
        replay: what to show.
        scene: a `viser.SceneApi`.
    """

    def __init__(self, replay: Replay, scene: Any) -> None:
        self.replay = replay
        self._scene = scene
        scene.set_up_direction(replay.up)
        self._meshes: list[Any] = []
        self._bodies = [self._add_body(index) for index in range(len(replay.names))]
        self._add_environment()
        thickness = replay.radius / 80
        # Far from the origin of the world their single precision would round contacts.
        scene.add_frame("/contacts", show_axes=False, position=replay.center)
        self._points = scene.add_point_cloud(
            "/contacts/points",
            NOTHING[:, 0],
            POINT,
            point_size=2 * thickness,
            point_shape="circle",
            precision="float32",
        )
        self._arrows = scene.add_arrows(
            "/contacts/forces",
            NOTHING,
            FORCE,
            shaft_radius=thickness,
            head_radius=2.2 * thickness,
            head_length=5 * thickness,
        )
        self._shells: dict[tuple[int, int], Any] = {}

    def show(self, frame: int, points: bool = True, forces: bool = True) -> None:
        """Place everything but the scaled sets.

        Args:
            frame: which.
            points: whether to show contact points.
            forces: whether to show force arrows.
        """
        for index, node in enumerate(self._bodies):
            self._place(node, index, frame)
        arrows = self.replay.arrows(frame)
        self._points.visible = points and len(arrows) > 0
        self._arrows.visible = forces and len(arrows) > 0
        if len(arrows):
            arrows = arrows - self.replay.center
            self._points.points = arrows[:, 0]
            self._arrows.points = arrows

    def show_scaled(self, frame: int, contacts: np.ndarray) -> None:
        """Show the shapes of these contacts, scaled by their alpha, and of no others."""
        shown = set()
        for contact in contacts:
            alpha = self.replay.contacts.alpha[frame, contact]
            ends = (self.replay.contacts.first[contact], self.replay.contacts.second[contact])
            for index in (int(end) for end in ends if end >= 0 and alpha > 0):
                shown.add((int(contact), index))
                self._place_shell(self._shell(int(contact), index), index, frame, float(alpha))
        for key in self._shells.keys() - shown:
            self._shells[key].visible = False

    def see_through(self, on: bool) -> None:
        """Draw bodies transparent, to see what touches behind them."""
        for mesh in self._meshes:
            mesh.opacity = GLASS if on else None

    def _place(self, node: Any, body: int, frame: int) -> None:
        node.visible = bool(self.replay.visible[frame, body])
        if node.visible:
            node.position = self.replay.position[frame, body]
            node.wxyz = self.replay.orientation[frame, body]

    def _place_shell(self, node: Any, index: int, frame: int, alpha: float) -> None:
        piece = self.replay.pieces[index]
        node.scale, node.visible = alpha, np.isfinite(alpha)
        if piece.body is None:
            return
        self._place(node, piece.body, frame)
        if node.visible:
            turn = Rotation.from_quat(node.wxyz, scalar_first=True)
            node.position = self.replay.position[frame, piece.body] + turn.apply(piece.reference)

    def _add_body(self, index: int) -> Any:
        # To viser a slash makes a child, which moves along.
        name = self.replay.names[index].replace("%", "%25").replace("/", "%2F")
        path = f"/bodies/{name}"
        node = self._scene.add_frame(path, show_axes=False)
        color = _rgb(body_color(index))
        for k, piece in enumerate(p for p in self.replay.pieces if p.body == index):
            self._meshes.append(self._add_piece(f"{path}/piece{k}", piece, color=color))
        return node

    def _add_piece(self, path: str, piece: PieceMesh, **style: Any) -> Any:
        return self._scene.add_mesh_simple(
            path, piece.vertices, piece.triangles, position=piece.reference, **style
        )

    def _add_environment(self) -> None:
        for k, piece in enumerate(p for p in self.replay.pieces if p.body is None):
            path = f"/environment/fixture{k}"
            self._add_piece(path, piece, color=FIXTURE, opacity=0.25, cast_shadow=False)
        for k, plane in enumerate(self.replay.planes):
            self._add_plane(f"/environment/plane{k}", plane)

    def _add_plane(self, path: str, plane: Plane) -> None:
        replay, normal = self.replay, plane.normal
        # Centred under the motion, wherever the half-space has its own origin.
        middle = replay.center - normal * (normal @ (replay.center - plane.point))
        turn, _ = Rotation.align_vectors(normal[None], [[0.0, 0.0, 1.0]])
        side = 2 * replay.plane_extent(plane)
        self._scene.add_grid(
            path,
            width=side,
            height=side,
            cell_size=replay.grid_cell,
            section_size=5 * replay.grid_cell,
            cell_color=GRID,
            section_color=GRID,
            plane_color=FLOOR,
            plane_opacity=0.6,
            shadow_opacity=0.3,
            fade_distance=20 * replay.radius,
            position=middle,
            wxyz=turn.as_quat(scalar_first=True),
        )

    def _shell(self, contact: int, index: int) -> Any:
        """Made when first wanted: a scene may have thousands of pairs."""
        if (contact, index) not in self._shells:
            self._shells[contact, index] = self._add_piece(
                f"/scaled/contact{contact}/piece{index}",
                self.replay.pieces[index],
                color=SHELL,
                wireframe=True,
                cast_shadow=False,
                receive_shadow=False,
            )
        return self._shells[contact, index]


def _rgb(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)
