"""Are the files that a repository shows to others true and whole?"""

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

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


@pytest.mark.parametrize("path", [path for path in FORMS if path.name != "config.yml"], ids=lambda path: path.name)
def test_a_form_is_one_that_github_takes(path: Path) -> None:
    """As GitHub's page on the syntax of issue forms says it."""
    form = yaml.safe_load(path.read_text())
    assert (
        {"name", "description", "body"} <= set(form) <= {"name", "description", "body", "labels", "title", "assignees", "projects", "type"}
    )
    ids = [each["id"] for each in form["body"]]
    assert len(ids) == len(set(ids))
    for each in form["body"]:
        assert each["type"] in {"textarea", "input", "checkboxes", "dropdown", "markdown"}
        assert each["attributes"]["label"]
        if each["type"] == "checkboxes":
            assert all(set(option) <= {"label", "required"} for option in each["attributes"]["options"])


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
