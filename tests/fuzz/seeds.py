"""With which requests, answers and event streams does the search begin?"""

import json

from tests.support.plane import BODY, STREAM_BODY, get, post
from tests.support.raw_engine import STREAM_HEAD, chunked, json_answer

TOOLS_BODY = json.dumps({
    "model": "m",
    "stream": True,
    "stream_options": {"include_usage": True},
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "a\ud83d"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "ü"},
    ],
}).encode()
HIDDEN = post(b'{"model":"hidden"}', x_request_id="hidden")
CHUNKED = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"

REQUESTS = [
    post(),
    post(STREAM_BODY, x_luftpause_run_id="r", x_luftpause_class="batch", traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01"),
    post(TOOLS_BODY),
    get("/health"),
    post(TOOLS_BODY, connection="close"),
    post(TOOLS_BODY, version="1.0"),
    post(path="http://localhost/v1/chat/completions?a=b", expect="100-continue"),
    post(b'{"model":"m","prompt":["a"]}', path="/v1/completions"),
    post(b'{"model":"m","input":[{"type":"function_call_output","call_id":"c"}],"previous_response_id":"x"}', path="/v1/responses"),
    post(
        b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"}]}]}',
        path="/v1/messages",
    ),
    post(b'{"model":"m","input":"a"}', path="/v1/embeddings"),
    post(rb'{"priority": 5, "model":"m", "x":[1.0, "\ud83d\ude00"], "tools":[{"priority":1}]}'),
    CHUNKED + chunked(BODY[:20]) + b"%x;a=b\r\n%b\r\n" % (len(BODY[20:]), BODY[20:]) + b"0\r\nx-t: y\r\n\r\n",
    CHUNKED + chunked(BODY) + b"0\r\n\r\n" + HIDDEN,
    post(BODY + HIDDEN),
    post() + HIDDEN,
    get("/health") + get("/v1/responses/x", "DELETE"),
    get("/v1/chat/completions", "OPTIONS", origin="http://a", access_control_request_method="POST"),
    get("*", "OPTIONS"),
    get("/x", "HEAD", upgrade="websocket", connection="upgrade"),
]

GOOD = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}'
CHAT = (
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"content":"hi \xc3\xbc"},"finish_reason":null}]}\n\n: ping\n\n'
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{"}}]}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3}}}\n\n'
    b"data: [DONE]\n\n"
)
MESSAGES = (
    b'event: message_start\r\ndata: {"type":"message_start","message":{"usage":{"input_tokens":3}}}\r\n\r\n'
    b'event: content_block_start\r\ndata:{"type":"content_block_start","content_block":{"type":"tool_use","id":"t1"}}\r\n\r\n'
    b'event: content_block_delta\r\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}\r\n\r\n'
    b'data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":3}}\r\n\r\n'
    b'data: {"type":"message_stop"}\r\n\r\n'
)
RESPONSES = (
    b'event: response.created\ndata: {"type":"response.created","response":{"id":"resp_1","status":"in_progress","store":true}}\n\n'
    b'data: {"type":"response.output_text.delta","delta":"a"}\n\n'
    b'data: {"type":"response.output_item.done","item":{"type":"function_call","call_id":"c1"}}\n\n'
    b'data: {"type":"response.completed","response":{"id":"resp_1","status":"completed","usage":{"input_tokens":1,"output_tokens":1}}}\n\n'
)
ERROR = b'data: {"error":{"message":"x","code":504}}\n\ndata: [DONE]\n\n'
FULL = b'data: {"object":"error","message":"The request queue is full.","code":503}\n\n'
EVENTS = [CHAT, MESSAGES, RESPONSES, ERROR, FULL]
ANSWERS = [
    json_answer(GOOD),
    json_answer(b'{"error":{"message":"The engine is currently busy and cannot accept new requests."}}', "503 X", b"retry-after: 1\r\n"),
    json_answer(b'{"error":{"message":"no"}}', "400 Bad Request", b"x-a: b\r\nConnection: x-a\r\n"),
    b"HTTP/1.1 100 Continue\r\n\r\n" + json_answer(GOOD),
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + EVENTS[0],
    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\ntransfer-encoding: chunked\r\n\r\n" + chunked(GOOD) + b"0\r\nt: v\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%b" % (len(EVENTS[0]), EVENTS[0]),
    *(STREAM_HEAD + chunked(each[:70]) + chunked(each[70:]) + b"0\r\n\r\n" for each in EVENTS),
    json_answer(GOOD) + json_answer(b"hidden"),
]
