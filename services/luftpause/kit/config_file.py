"""How does `luftpause.yaml` become a `Config`, and how is a mistake in it reported?"""

from pathlib import Path

import yaml

from luftpause.kit.config import Config


def load(path: Path | None) -> Config:
    """Read the file (None: all defaults) and the environment; raises ConfigError."""
    if path is None:
        return Config()
    return Config.model_validate(yaml.safe_load(path.read_text()) or {})
