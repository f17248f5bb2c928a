"""One validated config per part, the recipe they make up, and its JSON. Needs no torch."""

from textspace.config.base import *  # noqa: F403
from textspace.config.objectives import *  # noqa: F403
from textspace.config.parts import *  # noqa: F403
from textspace.config.recipe import *  # noqa: F403
from textspace.config.schedules import *  # noqa: F403
from textspace.config.text import *  # noqa: F403
from textspace.config.training import *  # noqa: F403
