"""luftpause keeps the state of an agent's run between harnesses and inference engines."""

from importlib.metadata import version

__version__ = version("luftpause")
