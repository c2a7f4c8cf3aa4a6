"""What does a dataplane take from the scheduler's part of its configuration?"""

import pytest

from luftpause.dataplane.app import own_config
from luftpause.kit.config import Config


@pytest.mark.parametrize(
    ("policy", "usage", "expected"),
    [
        ("original", None, "observe"),
        ("guard", None, "ask"),
        ("guard", "observe", "observe"),
        ("original", "ask", "ask"),
    ],
)
def test_usage_is_asked_for_under_guard_unless_the_file_says_otherwise(policy: str, usage: str | None, expected: str) -> None:
    own = {} if usage is None else {"usage": usage}
    config = Config.model_validate({"scheduler": {"policy": policy}, "dataplane": own | {"port": 7}})
    assert (own_config(config).usage, own_config(config).port) == (expected, 7)
