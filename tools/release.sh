#!/usr/bin/env bash
# Makes a release: builds and pushes the images, makes and pushes the git tag.
#   tools/release.sh vX.Y.Z               needs docker with buildx, and that you are logged in to the registry
#   DRY_RUN=1 tools/release.sh vX.Y.Z     only prints what would be run, and what is not ready yet
# LUFTPAUSE_REGISTRY (ghcr.io/luftpause), PLATFORMS (linux/amd64,linux/arm64), REMOTE (origin).
# Exit status 1: something is not ready, nothing was done; 2: that is no version.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
[ $# -eq 1 ] || usage
tag=$1
[[ $tag =~ ^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?$ ]] || { echo "$tag is no version; write vX.Y.Z, as in v0.2.0 or v0.2.0-rc.1" >&2; exit 2; }
version=${tag#v}
minor="${BASH_REMATCH[1]}.${BASH_REMATCH[2]}"
pre=${BASH_REMATCH[4]}
image=${LUFTPAUSE_REGISTRY:-ghcr.io/luftpause}/luftpause
remote=${REMOTE:-origin}
platforms=${PLATFORMS:-linux/amd64,linux/arm64}
dry=${DRY_RUN:-}

problems=()
holds() { # FILE LINE: the file has this line
  grep -qxF -- "$2" "$1" || problems+=("$1: there is no line \`$2\`")
}
[ -z "$(git status --porcelain)" ] || problems+=("there are changes that are not committed")
if git rev-parse -q --verify "refs/tags/$tag" >/dev/null; then problems+=("the tag $tag exists"); fi
holds pyproject.toml "version = \"$version\""
holds deploy/helm/luftpause/Chart.yaml "version: $version"
holds deploy/helm/luftpause/Chart.yaml "appVersion: \"$version\""
holds server.json "  \"version\": \"$version\","
grep -qF "/luftpause:$version\"" server.json || problems+=("server.json: the package is not luftpause:$version")
grep -qE "^## ${version//./\\.}( |$)" CHANGELOG.md || problems+=("CHANGELOG.md: there is no heading \`## $version\`; give \`## Unreleased\` this name and the date")

if [ ${#problems[@]} -gt 0 ]; then
  printf 'not ready: %s\n' "${problems[@]}" >&2
  [ -n "$dry" ] || exit 1
fi

run() {
  printf '%q ' "$@"; echo
  [ -n "$dry" ] || "$@"
}
tags=(--tag "$image:$version")
[ -n "$pre" ] || tags+=(--tag "$image:$minor" --tag "$image:latest")   # a pre-release moves no tag that people follow

build=(docker buildx build --platform "$platforms" --label "org.opencontainers.image.version=$version" --label "org.opencontainers.image.revision=$(git rev-parse HEAD)")
run "${build[@]}" .                                   # everything is built before anything is published
run git tag --annotate "$tag" --message "luftpause $version"
run "${build[@]}" "${tags[@]}" --push .
run git push "$remote" "refs/tags/$tag"
