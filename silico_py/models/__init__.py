"""Models that people bring: MJCF and URDF in and out, meshes as bodies."""

from silico_py.models.errors import ModelWarning as ModelWarning
from silico_py.models.errors import UnsupportedModelError as UnsupportedModelError
from silico_py.models.load import load_model as load_model
from silico_py.models.mesh import load_mesh as load_mesh
from silico_py.models.save import save_model as save_model
