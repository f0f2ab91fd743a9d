"""HTTP: the control plane's routes and the server that answers them."""

from importlib.util import find_spec

for _needed in ("fastapi", "uvicorn"):
    if find_spec(_needed) is None:
        raise ModuleNotFoundError(
            f"the HTTP server is not installed ({_needed} is missing): pip install 'holdfast[server]'", name=_needed
        )
