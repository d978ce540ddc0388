"""Help, completion and the manual page, which are made of the same declarations."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from keepfast.cli.app import app
from tests.cli.runs import call

COMMANDS = [info.name for info in app.registered_commands if info.name]


def test_help__shows_every_command_in_a_group_and_cuts_nothing_off(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = call(capsys, "--help").out
    for title in ("Run:", "Look:", "Prove:", "Learn:", "About:"):
        assert title in out
    assert "More:" not in out, "give the new command a group in help_layout.py"
    # Three dots are what is left of a sentence, but for lists of examples.
    assert [line for line in out.splitlines() if re.search(r"[a-z],?\.\.\.$", line)] == []
    for name in COMMANDS:
        assert re.search(rf"^  {name}  ", out, re.MULTILINE), name


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command__names_no_types_of_python(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = call(capsys, *name.split(), "--help").out
    assert not re.search(r"<(list|str|int|float|path)", out)
    assert "x>=" not in out
    assert "<=x" not in out
    usage = out.splitlines()[0]
    assert not re.search(r"[{}]|\[\[|\.{4}", usage), usage


def complete(script: str, *words: str) -> list[str]:
    """What bash offers for the last of these words."""
    quoted = " ".join(f"'{word}'" for word in words)
    program = f"{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _keepfast\n"
    program += 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_completion__bash_offers_commands_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    script = call(capsys, "completion", "bash").out
    assert complete(script, "keepfast", "ver") == ["verify", "version"]
    assert complete(script, "keepfast", "serve", "--da") == ["--data-dir"]
    assert complete(script, "keepfast", "inspect", "bl") == ["blame"]
    assert complete(script, "keepfast", "inspect", "blame", "--ch") == ["--children"]
    assert complete(script, "keepfast", "inspect", "--ch") == []
    assert complete(script, "keepfast", "audit", "--engine", "") == ["spark", "local"]
    assert complete(script, "keepfast", "completion", "z") == ["zsh"]
    assert complete(script, "keepfast", "lab", "disk") == ["disk-full"]
    assert complete(script, "keepfast", "shell", "--no") == ["--no-verify"]
    # Nothing of ours, so that the shell offers files.
    assert complete(script, "keepfast", "verify", "") == []
    assert complete(script, "keepfast", "backup", "") == []


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_completion__fish_offers_values_and_texts(capsys: pytest.CaptureFixture[str]) -> None:
    script = call(capsys, "completion", "fish").out
    program = f"{script}\ncomplete -C 'keepfast audit --engine '; complete -C 'keepfast verif'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", program], capture_output=True, text=True, check=True
    )
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == [
        "local",
        "spark",
        "verify",
    ]
    assert "verify\tReport whether a recovery path is proven." in done.stdout


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion__other_shells_take_the_script(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    script = call(capsys, "completion", shell).out
    for name in COMMANDS:
        assert name.split()[0] in script
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_help__fits_into_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("", *COMMANDS):
        for line in call(capsys, *name.split(), "--help").out.splitlines():
            assert len(line) < 80, f"{name}: {line}"


def test_manual__has_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    page = call(capsys, "manual").out
    assert "connect by TLS" in page, "the shell's own options are missing"
    for name in COMMANDS:
        assert f".SS keepfast {name}" in page
    if shutil.which("groff") is not None:
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww"],
            input=page,
            text=True,
            capture_output=True,
            check=True,
        )
        assert done.stderr == ""


def test_version__is_an_option_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "--version").out == call(capsys, "version").out


def test_missing_package__is_named_with_the_extra_that_brings_it() -> None:
    from keepfast.cli.app import finish

    def fail() -> None:
        raise ModuleNotFoundError("No module named 'pyspark.sql'", name="pyspark.sql")

    assert finish(fail) == 4
