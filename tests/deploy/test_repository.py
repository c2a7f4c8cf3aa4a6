"""Are the files that a repository shows to others true and whole?"""

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.deploy.schemas import mistakes, schema

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", ".github/pull_request_template.md")
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))


@pytest.mark.parametrize("name", TEXTS)
def test_every_link_into_the_repository_leads_somewhere(name: str) -> None:
    text = (ROOT / name).read_text()
    for link in re.findall(r"\]\(([^)]+)\)", text):
        path, _, anchor = link.partition("#")
        if "://" in path:
            continue
        target = (ROOT / name).parent / path
        assert target.exists(), link
        if anchor:
            headings = {
                re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-")
                for line in target.read_text().splitlines()
                if line.startswith("#")
            }
            assert anchor in headings, link


@pytest.mark.parametrize("name", TEXTS)
def test_every_file_and_task_that_a_text_names_is_there(name: str) -> None:
    text = (ROOT / name).read_text()
    tasks = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["poe"]["tasks"]
    assert set(re.findall(r"\bpoe ([a-z]+)", text)) <= set(tasks)
    named = re.findall(r"`(?:python )?((?:tools|docs|services|deploy)/[\w./-]+)`", text)
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_changelog_begins_with_what_is_not_released() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+(-[\w.]+)? \(\d{4}-\d{2}-\d{2}\)", heading) for heading in headings[1:])


def test_there_are_forms_for_bugs_and_ideas_and_a_private_way_for_vulnerabilities() -> None:
    assert [path.name for path in FORMS] == ["bug.yml", "config.yml", "idea.yml"]
    (link,) = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/config.yml").read_text())["contact_links"]
    assert link["url"].endswith("/security/advisories/new")


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_a_form_is_one_that_github_takes(path: Path) -> None:
    assert mistakes("issue-config" if path.name == "config.yml" else "issue-form", yaml.safe_load(path.read_text())) == []


def test_a_form_with_a_mistake_would_be_noticed() -> None:
    form = yaml.safe_load(FORMS[0].read_text())
    del form["body"][0]["attributes"]["label"]
    assert mistakes("issue-form", form)


def test_the_registrys_entry_is_one_that_it_takes() -> None:
    server = json.loads((ROOT / "server.json").read_text())
    assert server["$schema"] == schema("mcp-server")["$id"]
    assert mistakes("mcp-server", server) == []
    assert mistakes("mcp-server", {**server, "name": "no namespace"})
    assert mistakes("mcp-server", {**server, "description": "x" * 101})


def test_the_registrys_entry_is_this_server() -> None:
    server = json.loads((ROOT / "server.json").read_text())
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert f'io.modelcontextprotocol.server.name="{server["name"]}"' in dockerfile  # how the registry knows whose image it is
    assert server["repository"]["url"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
    assert len(server["description"]) <= 100
    (package,) = server["packages"]
    assert package["registryType"] == "oci"
    assert "version" not in package  # it is in the identifier
    names = {each["name"] for each in package["environmentVariables"]}
    assert names == {"LUFTPAUSE_RUNTIME__HOST", "LUFTPAUSE_TOKEN"}
    secrets = [each["name"] for each in package["environmentVariables"] if each.get("isSecret")]
    assert secrets == ["LUFTPAUSE_TOKEN"]
