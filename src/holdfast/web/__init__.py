"""HTTP: the control plane's routes and the server that answers them.

The routes need FastAPI alone, so that applications can mount them; only the module `server` needs more.
"""

from importlib.util import find_spec

if find_spec("fastapi") is None:
    raise ModuleNotFoundError(
        "the HTTP routes are not installed (fastapi is missing): to mount them pip install 'holdfast[fastapi]', "
        "for the server pip install 'holdfast[server]'",
        name="fastapi",
    )
