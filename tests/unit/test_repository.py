"""What the repository's own texts say is so: examples load, commands exist, pages are whole, no machine shows."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.config.load import parse_config
from pipeline.settings import Settings

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))


def fenced(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@cache
def tracked() -> dict[str, str]:
    """Every text file that git knows, by path."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    found = {}
    for name in listed.decode().split("\0"):
        path = ROOT / name
        if name and path.is_file():
            data = path.read_bytes()
            if b"\0" not in data:
                found[name] = data.decode("utf-8", "replace")
    return found


def commands() -> dict[str, Any]:
    """Every command of the command line by its words; a group counts where it does something by itself."""
    from worker.cli.app import command

    def walk(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
        for name, made in group.commands.items():
            if hasattr(made, "commands"):
                yield from walk(made, (*words, name))
            if not hasattr(made, "commands") or made.invoke_without_command:
                yield " ".join((*words, name)), made

    return dict(walk(command()))


def split_words(words: list[str], known: dict[str, Any]) -> tuple[str, list[str]]:
    """A command's name and its other words."""
    for length in (2, 1):
        if (name := " ".join(words[:length])) in known:
            return name, words[length:]
    raise AssertionError(f"{words} starts with no command of tidegate")


def assert_takes(words: list[str], known: dict[str, Any]) -> None:
    """Whether the command line has this command with these options."""
    name, rest = split_words(words, known)
    options = {option for param in known[name].params for option in (*param.opts, *param.secondary_opts)}
    used = {word.partition("=")[0] for word in rest if word.startswith("--")}
    assert used <= options | {"--json", "--debug"}, f"tidegate {name} does not have {sorted(used - options)}"


# --- README ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", fenced(README, "yaml"))
def test_every_configuration_in_the_readme_loads_without_a_warning(block: str) -> None:
    settings = Settings()
    settings._environ = {"VLLM_KEY": "a", "OPENAI_API_KEY": "b", "ANTHROPIC_API_KEY": "c"}

    loaded = parse_config(block, "README.md", settings)

    assert loaded.warnings == ()
    assert loaded.config.kb.vlm is not None


def test_the_readme_begins_with_the_two_commands() -> None:
    first = fenced(README, "sh")[0]

    assert [line.split("#")[0].strip() for line in first.splitlines()] == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    texts = README + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for target in set(re.findall(r"(?:^|`|&& )make ([a-z]+)", texts, re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"make has no target {target!r}"


def test_the_commands_that_the_readme_shows_exist() -> None:
    known = commands()
    shown = re.findall(
        r"^(?:docker compose exec \w+ )?tidegate ([^#\n]*)", "\n".join(fenced(README, "sh")), re.MULTILINE
    )
    shown += re.findall(r"`tidegate ([^`]+)`", README)

    assert len(shown) > 8
    for words in shown:
        assert_takes(words.split(), known)


def test_the_readmes_table_has_every_command() -> None:
    table = README.partition("| command | does |")[2].partition("\n\n")[0]
    named = {
        " ".join(word for word in phrase.split() if word.islower() and word.isalpha())
        for row in table.splitlines()
        for phrase in re.findall(r"`([^`]+)`", row.split("|")[1] if row.count("|") > 1 else "")
    }
    known = commands()
    # `targets disable` and its like stand in the row of `targets`.
    whole = {name for name in known if name in named or name.split()[0] in named}

    assert named <= set(known) | {name.split()[0] for name in known}
    assert set(known) - whole == set()


def test_links_between_the_texts_lead_somewhere() -> None:
    for text in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DECISIONS]:
        words = text.read_text(encoding="utf-8")
        for link in re.findall(r"\]\(([^)#]+)\)", words) + re.findall(r'src="([^"]+)"', words):
            if not link.startswith("https://"):
                assert (text.parent / link).exists(), f"{text.name} links to {link}"


# --- the other texts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_has_its_context_its_choice_and_its_consequence(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    title = re.match(r"# (\d+)\.? ", text)

    assert title is not None
    assert int(title.group(1)) == int(page.name[:4])
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Choice", "Consequence"]


def test_decisions_are_numbered_without_gaps() -> None:
    assert [int(page.name[:4]) for page in DECISIONS] == list(range(1, len(DECISIONS) + 1))


def test_pages_that_code_refers_to_are_there() -> None:
    for name, text in tracked().items():
        for page in re.findall(r"docs/decisions/(\d{4}[\w-]*(?:\.md)?)", text):
            matches = [found for found in DECISIONS if found.name.startswith(page)]
            assert matches, f"{name} refers to {page}"


def test_the_changelog_has_the_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


# --- deployment ------------------------------------------------------------------------------------------------------


@pytest.fixture
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    return loaded


def test_the_deployment_runs_commands_that_exist(compose: dict[str, Any]) -> None:
    ours = {name: service for name, service in compose["services"].items() if "build" in service}
    known = commands()

    assert {"migrate", "beat", "flower", "cli"} < set(ours)
    for service in ours.values():
        assert_takes(service["command"], known)


def test_every_queue_has_a_worker_and_everything_comes_back(compose: dict[str, Any]) -> None:
    from pipeline.domain.unit import QUEUES

    services = compose["services"]
    queues = {service["command"][2] for service in services.values() if service.get("command", [""])[0] == "worker"}

    assert queues == {queue.value for queue in QUEUES}
    for name, service in services.items():
        once = name in {"migrate", "cli"}
        assert service["restart"] == ("no" if once else "always")
        assert once or "healthcheck" in service
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name} is open to the network"


def test_the_environment_file_has_what_the_deployment_asks_for(compose: dict[str, Any]) -> None:
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    asked = set(re.findall(r"(?<!\$)\$\{(\w+)", json.dumps(compose)))

    assert asked - set(re.findall(r"^(?:# )?(\w+)=", example, re.MULTILINE)) == set()


def test_variables_of_the_deployment_and_the_readme_are_read(compose: dict[str, Any]) -> None:
    known = {f"TIDEGATE_{name.upper()}" for name in Settings.model_fields}
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")

    assert set(re.findall(r"TIDEGATE_\w+", json.dumps(compose) + dockerfile + README)) - known == set()


def test_the_image_copies_what_the_package_is_built_from() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = {name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    needed = packages | {"requirements.lock", "pyproject.toml", project["project"]["readme"], "LICENSE"}
    allowed = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE))
    copied = set(re.findall(r"[\w.]+", " ".join(re.findall(r"^COPY (?!--)(.+)$", _dockerfile(), re.MULTILINE))))

    assert needed <= allowed
    assert needed <= copied


def test_the_image_does_not_run_as_root_and_checks_hashes() -> None:
    assert re.search(r"^USER tidegate$", _dockerfile(), re.MULTILINE)
    assert "--require-hashes" in _dockerfile()


def _dockerfile() -> str:
    return (ROOT / "Dockerfile").read_text(encoding="utf-8")


# --- no machine shows through ----------------------------------------------------------------------------------------

# Written in pieces, so that this file is not among those it finds.
INDEX_HOSTS = ["pypi" + ".org", "python" + "hosted", "npmjs" + ".", "ghcr" + ".io", "quay" + ".io", "docker" + ".io/"]
MACHINE_PATHS = re.compile(
    r"(?<![\w.$}/-])/(?:" + "|".join(["wo" + "rk", "fa" + "rm", "op" + "t", "ro" + "ot"]) + r")/\w"
)
USER_HOMES = re.compile(r"(?<![\w.$}/-])/(?:ho" + "me|Us" + r"ers)/\w")


def test_no_file_names_a_package_index() -> None:
    found = [f"{name}: {host}" for name, text in tracked().items() for host in INDEX_HOSTS if host in text]

    assert found == []


def test_no_file_names_a_place_on_the_machine_it_was_written_on() -> None:
    found = [
        f"{name}: {match.group()}"
        for name, text in tracked().items()
        for pattern in (MACHINE_PATHS, USER_HOMES)
        for match in pattern.finditer(text)
    ]

    assert found == []


def test_hooks_download_nothing() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))

    assert {repo["repo"] for repo in hooks["repos"]} == {"local"}
    assert {hook["language"] for repo in hooks["repos"] for hook in repo["hooks"]} == {"system"}
