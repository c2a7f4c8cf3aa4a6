"""What does a call cost by its HTTP method?"""

import pytest

from luftpause.kit.config_governor import PROFILES
from luftpause.kit.quota_cost import cost_of_method
from luftpause.scheduler.quota.profiles import call_cost


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("method", ["GET", "head", "OPTIONS", "POST", "patch", "PUT", "DELETE", "PROPFIND"])
def test_it_is_what_the_profile_says(profile: str, method: str) -> None:
    assert dict(cost_of_method(profile, method) or call_cost(profile)) == dict(call_cost(profile, method))


def test_of_what_is_not_configured_nothing_is_known() -> None:
    assert cost_of_method(None, "POST") is None
