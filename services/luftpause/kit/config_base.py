"""What are all sections of the configuration made of?"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from luftpause.kit.errors import ConfigError
from luftpause.kit.urls import base_url, listening_host, page_origin, served_host

NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
URL_PATTERN: Final = r"^https?://[^\s]+$"
PATH_PATTERN: Final = r"^[^\s:]+$"
VARIABLE_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
KEY_CHARS_MIN: Final = 24


def _own_file(path: Path) -> Path:
    """`~` is this user's home."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ValueError(f"{path} can't be found: there is no such user, or no HOME; write the whole path") from error


def _checked(check: Callable[[str], str]) -> AfterValidator:
    """`check` says by a ConfigError what is wrong, and returns what holds."""

    def checked(value: str) -> str:
        try:
            return check(value)
        except ConfigError as error:
            raise ValueError(error.message) from error

    return AfterValidator(checked)


def _base(url: str) -> str:
    base_url(url)
    return url


def _from_root(path: str) -> str:
    return f"/{path.lstrip('/')}"


def _no_key(name: str) -> str:
    """Keys of some providers are letters, digits and `_` too; of a variable nobody makes so long a mixture."""
    if len(name) >= KEY_CHARS_MIN and any(each.islower() for each in name) and any(each.isdigit() for each in name):
        raise ValueError("this looks like a key; put the key into an environment variable, and write that one's name here")
    return name


Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
Url = Annotated[str, StringConstraints(pattern=URL_PATTERN)]
BaseUrl = Annotated[str, StringConstraints(pattern=URL_PATTERN), _checked(_base)]
UrlPath = Annotated[str, StringConstraints(pattern=PATH_PATTERN), AfterValidator(_from_root)]
Host = Annotated[str, _checked(listening_host)]
ServedHost = Annotated[str, _checked(served_host)]
Origin = Annotated[str, _checked(page_origin)]
Variable = Annotated[str, StringConstraints(pattern=VARIABLE_PATTERN), AfterValidator(_no_key)]
File = Annotated[Path, AfterValidator(_own_file)]
Seconds = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]
Port = Annotated[int, Field(ge=0, le=65535)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
