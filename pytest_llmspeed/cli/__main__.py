"""`python -m pytest_llmspeed.cli` does what `llmspeed` does."""

import sys

from pytest_llmspeed.cli.main import main

sys.exit(main())
