"""Where do links of the documentation lead that name files beside it? To the repository's pages (a hook of mkdocs)."""

import posixpath
import re
from typing import Any, Final

LINK: Final = re.compile(r"(?<=\]\()(?P<path>(?:\.\./)+[^)#\s]*)(?P<anchor>#[^)\s]*)?(?=\))")
ROOT: Final = "docs"


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    folder = posixpath.dirname(posixpath.join(ROOT, page.file.src_uri))

    def there(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match["path"]))
        if path == ROOT or path.startswith(f"{ROOT}/"):
            return match[0]
        return f"{config.repo_url.rstrip('/')}/blob/main/{path}{match['anchor'] or ''}"

    return LINK.sub(there, markdown)
