"""What are all sections of the configuration made of?"""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
URL_PATTERN: Final = r"^https?://[^\s]+$"
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
Url = Annotated[str, StringConstraints(pattern=URL_PATTERN)]
Seconds = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]
Port = Annotated[int, Field(ge=0, le=65535)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
