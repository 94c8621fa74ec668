"""Looking at simulations: a live window, a page in one file, a frame in a notebook, pictures."""

from silico_py.viewing.page import Page as Page
from silico_py.viewing.page import save_html as save_html
from silico_py.viewing.page import show as show
from silico_py.viewing.replay import Replay as Replay
from silico_py.viewing.window import Viewer as Viewer
from silico_py.viewing.window import view as view
