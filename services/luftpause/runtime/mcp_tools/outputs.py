"""Which JSON do the tools answer with?"""

from typing import Final

from luftpause.runtime.ports import BudgetKind, Json, RunState

_COUNT: Final[Json] = {"type": "integer", "minimum": 0}
_AMOUNTS: Final[Json] = {
    "type": "object",
    "properties": {
        BudgetKind.TOKENS.value: _COUNT,
        BudgetKind.TOOL_CALLS.value: _COUNT,
        BudgetKind.SECONDS.value: {"type": "number", "minimum": 0},
    },
}
_APPROVAL: Final[Json] = {
    "type": "object",
    "properties": {"approvalId": {"type": "string"}, "tool": {"type": "string"}, "arguments": {"type": "object"}},
    "required": ["approvalId", "tool", "arguments"],
}

RUN: Final[Json] = {
    "type": "object",
    "properties": {
        "handle": {"type": "string", "description": "Names the run; needed for await, status, cancel and approve."},
        "state": {"type": "string", "enum": [state.value for state in RunState]},
        "task": {"type": "string", "description": "Beginning of its task."},
        "model": {"type": "string"},
        "serviceClass": {"type": "string", "enum": ["interactive", "batch"]},
        "answer": {"type": "string", "description": "Its answer, when Completed."},
        "truncated": {"type": "boolean", "description": "The answer was cut at maxTokens."},
        "error": {"type": "string", "description": "Why it gave none."},
        "doing": {"type": "string", "description": "What it waits for, while Running."},
        "pendingApproval": {**_APPROVAL, "description": "The tool call that waits for a person, the oldest if there are several."},
        "otherPendingApprovals": {"type": "array", "items": _APPROVAL},
        "toolCalls": _COUNT,
        "failedToolCalls": _COUNT,
        "turns": _COUNT,
        "promptTokens": _COUNT,
        "completionTokens": _COUNT,
        "cachedTokens": _COUNT,
        "seconds": {"type": "number", "minimum": 0},
        "parent": {"type": "string"},
        "children": {"type": "array", "items": {"type": "string"}},
        "budget": {
            "type": "object",
            "description": "Limits of the run and its descendants together, and what was used of them.",
            "properties": {
                "limits": _AMOUNTS,
                "used": _AMOUNTS,
                "exceeded": {"type": "string", "enum": [kind.value for kind in BudgetKind]},
            },
            "required": ["limits", "used"],
        },
    },
    "required": [
        "handle", "state", "task", "model", "serviceClass", "toolCalls", "failedToolCalls", "turns",
        "promptTokens", "completionTokens", "cachedTokens", "seconds", "children",
    ],
}  # fmt: skip

RUNS: Final[Json] = {
    "type": "object",
    "properties": {
        "runs": {"type": "array", "items": RUN},
        "done": {**_COUNT, "description": "How many have ended."},
        "total": _COUNT,
    },
    "required": ["runs", "done", "total"],
}

DECIDED: Final[Json] = {
    "type": "object",
    "properties": {
        "approvalId": {"type": "string"},
        "tool": {"type": "string"},
        "allowed": {"type": "boolean", "description": "What was decided."},
        "first": {"type": "boolean", "description": "false: it had been decided before, and that decision stands."},
        "run": RUN,
    },
    "required": ["approvalId", "tool", "allowed", "first", "run"],
}

DECISION: Final[Json] = {
    "type": "object",
    "properties": {
        "label": {"type": "string"},
        "probabilities": {"type": "object", "additionalProperties": {"type": "number", "minimum": 0, "maximum": 1}},
        "unscored": {"type": "array", "items": {"type": "string"}, "description": "Labels that the model did not consider."},
        "model": {"type": "string"},
    },
    "required": ["label", "probabilities", "unscored", "model"],
}

TOOLS: Final[Json] = {
    "type": "object",
    "properties": {
        "tools": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "server": {"type": "string"},
                    "description": {"type": "string"},
                    "inputSchema": {"type": "object"},
                    "readOnly": {"type": "boolean"},
                    "destructive": {"type": "boolean"},
                    "needsApproval": {"type": "boolean", "description": "Each call of it waits for a person's consent."},
                },
                "required": ["name", "server", "description", "inputSchema", "readOnly", "destructive", "needsApproval"],
            },
        },
        "servers": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "connected": {"type": "boolean"},
                    "error": {"type": "string"},
                    "tools": _COUNT,
                    "notes": {"type": "array", "items": {"type": "string"}, "description": "Tools that can't be used, and why."},
                },
                "required": ["name", "connected", "tools"],
            },
        },
    },
    "required": ["tools", "servers"],
}

RESERVED: Final[Json] = {
    "type": "object",
    "properties": {
        "granted": {"type": "boolean", "description": "true: make the call now. false: don't."},
        "lease": {"type": "string", "description": "Names the call; needed for quota_report, and to ask again."},
        "fence": {**_COUNT, "description": "Of a granted lease; needed for quota_report."},
        "expiresMs": {**_COUNT, "description": "Within this the call is to be reported; then it counts as used."},
        "level": {**_COUNT, "description": "How far load should be cut: 0 not at all."},
        "retryMs": {**_COUNT, "description": "Not granted: ask again then."},
        "reason": {"type": "string", "description": "Not granted: why."},
    },
    "required": ["granted", "lease"],
}

REPORTED: Final[Json] = {
    "type": "object",
    "properties": {
        "settled": {"type": "boolean", "description": "false: the lease had ended before."},
        "limited": {"type": "boolean", "description": "The answer is a refusal by quota."},
        "kind": {"type": "string", "description": "Which refusal."},
        "retryMs": {**_COUNT, "description": "When the call may be tried again; not there: no wait helps, or none is needed."},
    },
    "required": ["settled", "limited"],
}
