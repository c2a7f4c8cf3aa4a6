"""Which models are there where a load goes?"""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from luftpause.cli import tokens
from luftpause.kit.errors import LuftpauseError

CONNECT_SECONDS_MAX: Final = 5.0
CLASSIFIER: Final = "classifier"  # what luftpause says of such a model; others say nothing
Json = dict[str, Any]


async def choose_model(base_url: str, token: str = "", *, classifier: bool = False) -> str:
    """The only model or classifier that is served there. Raises LuftpauseError if there is none, more than one, or nobody answers."""
    models = await _models(base_url, token)
    kinds = [str(model["id"]) for model in models if (model.get("kind") == CLASSIFIER) is classifier]
    found = sorted(kinds or (str(model["id"]) for model in models))
    if len(found) != 1:
        option = "--decide-model" if classifier else "--model"
        raise LuftpauseError(f"{base_url} serves {', '.join(found) or 'no model'}; choose one with {option}", code="which_model")
    return found[0]


async def _models(base_url: str, token: str) -> Sequence[Json]:
    url = base_url.rstrip("/") + "/models"
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=CONNECT_SECONDS_MAX, headers=tokens.headers(token)) as client:
            answer = await client.get(url)
            answer.raise_for_status()
            return [{**model, "id": model["id"]} for model in answer.json()["data"]]
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise LuftpauseError(f"{url} can't be read: {_why(error, base_url)}", code="no_server") from error


def _why(error: Exception, base_url: str) -> str:
    """What went wrong, and what may mend it."""
    match error:
        case httpx.HTTPStatusError(response=answer) if answer.status_code == 401:
            return "it answered 401; name the variable that holds your token with --token-env"
        case httpx.HTTPStatusError(response=answer):
            hint = "; a base URL mostly ends in /v1" if not urlsplit(base_url).path.strip("/") else ""
            return f"it answered {answer.status_code}{hint}"
        case httpx.HTTPError():
            return f"{str(error) or type(error).__name__}; is `luftpause up` running, and is --base-url right?"
        case _:
            return "its answer is no list of models; is --base-url right?"
