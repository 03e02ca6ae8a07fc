"""``python -m loopring_lab`` is ``loopring-lab``."""

import sys

from loopring_lab.cli import main

if __name__ == "__main__":
    sys.exit(main())
