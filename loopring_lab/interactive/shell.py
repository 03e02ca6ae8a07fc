"""The IPython shell that runs this, if there is one."""

from __future__ import annotations

import sys
from typing import Any


def running_shell() -> Any:
    """Return the IPython shell that runs this, or None."""
    # If IPython runs, it has been imported.
    if "IPython" not in sys.modules:
        return None
    return sys.modules["IPython"].get_ipython()
