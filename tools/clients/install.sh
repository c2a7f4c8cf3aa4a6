#!/usr/bin/env bash
# Installs the client CLIs, MCP's conformance suite and Inspector, and a Node that is new enough for them, from the npm registry (about 800 MB).
set -euo pipefail
clients=${LUFTPAUSE_CLIENTS:-$HOME/.cache/luftpause/clients}
mkdir -p "$clients"
cd "$clients"
[ -f package.json ] || echo '{"private": true}' >package.json
npm install --no-fund --no-audit node@24 @anthropic-ai/claude-code@2.1.197 @openai/codex@0.171.0 \
    @modelcontextprotocol/conformance@0.2.0-alpha.12 @modelcontextprotocol/inspector@2.12.0
echo "installed in $clients"
