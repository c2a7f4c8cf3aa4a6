"""What text do results become?"""

import mcp_types as types

from luftpause.runtime.ports import ToolResult
from luftpause.runtime.tools.results import printable, to_result


def test_a_result_without_a_word_still_says_something():
    assert to_result(types.CallToolResult(content=[types.TextContent(text=" \n")]), 100) == ToolResult("(the tool returned nothing)")
    assert to_result(types.CallToolResult(content=[], is_error=True), 100).failed


def test_text_that_no_journal_could_hold_is_mended():
    assert printable("\ud83d\ude00 \ud83d") == "😀 \ufffd"
    assert printable("plain") == "plain"


def test_sizes_of_what_is_not_shown_are_told():
    image = types.ImageContent(data="QUJD", mime_type="image/png")
    blob = types.EmbeddedResource(resource=types.BlobResourceContents(uri="file:///b", blob="QUJD" * 1000))
    text = to_result(types.CallToolResult(content=[types.TextContent(text="see:"), image, blob]), 1000).text
    assert text == "see:\n[image, image/png, 3 bytes, not shown]\n[resource file:///b, binary, 3 kB, not shown]"
