"""`connect()` without nodes reads the settings of the command `quorlock`."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quorlock
import quorlock.aio
from programs import end, eventually, start_command, stored
from quorlock.testing import Servers, servers

Connect = Callable[..., Any]
CONNECTS: list[Connect] = [quorlock.connect, quorlock.aio.connect]


@pytest.fixture(autouse=True)
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without settings, in which the process stands."""
    for name in os.environ.keys() & {"QUORLOCK_NODES", "QUORLOCK_CONFIG"}:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    folder = tmp_path / "here"
    folder.mkdir(mode=0o755)
    monkeypatch.chdir(folder)
    return folder


def write(file: Path, nodes: Servers, *lines: str) -> Path:
    """Writes a file with these servers, which are new."""
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join([f"nodes = {nodes.urls}", 'restart-guard = "off"', *lines]))
    file.chmod(0o644)
    return file


def test_a_file_of_the_command_configures_threads(host: Path, nodes: Servers) -> None:
    write(host / "quorlock.toml", nodes, 'key-prefix = "file:"', 'ttl = "7s"', 'wait = "0s"')
    with quorlock.connect() as q:
        for made in [q.lock("configured"), q.semaphore("configured permits", 1), q.lock_all(["configured"])]:
            assert "wait=0" in repr(made)
        with q.lock("configured"):
            assert stored(nodes, "file:configured")
            left = next(
                int(nodes.command(index, "PTTL", "file:configured")) for index in stored(nodes, "file:configured")
            )
            assert 0 < left <= 7_000
            with pytest.raises(quorlock.Held):
                q.lock("configured").acquire()
            assert "wait=5" in repr(q.lock("configured", wait=5)), "a lock has its own"
        with q.semaphore("configured permits", 1), pytest.raises(quorlock.Full):
            q.semaphore("configured permits", 1).acquire()


def test_a_file_of_the_command_configures_event_loops(host: Path, nodes: Servers) -> None:
    write(host / "quorlock.toml", nodes, 'key-prefix = "loop:"', 'wait = "0s"')

    async def main() -> None:
        async with quorlock.aio.connect() as q, q.lock("configured"):
            assert "wait=0" in repr(q.lock("configured"))
            assert stored(nodes, "loop:configured")
            with pytest.raises(quorlock.Held):
                await q.lock("configured").acquire()

    asyncio.run(main())


@pytest.mark.parametrize("connect", CONNECTS)
def test_keywords_override_variables_which_override_the_file(
    connect: Connect, host: Path, nodes: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Too long for any coordinator: whichever wins is in the error.
    file = write(host / "quorlock.toml", nodes, 'max-ttl = "11s"', 'ttl = "40s"')
    with pytest.raises(quorlock.ConfigError, match="40s.*max_ttl of 11s"):
        connect()
    monkeypatch.setenv("QUORLOCK_MAX_TTL", "12s")
    with pytest.raises(
        quorlock.ConfigError,
        match=r"^`ttl` in ./quorlock.toml and the variable QUORLOCK_MAX_TTL: .*40s.*max_ttl of 12s",
    ):
        connect()
    with pytest.raises(quorlock.ConfigError, match="40s.*max_ttl of 13s"):
        connect(max_ttl=13)
    with pytest.raises(quorlock.ConfigError, match="^the variable QUORLOCK_MAX_TTL: .*14s.*max_ttl of 12s"):
        connect(ttl=14)
    for keyword, wrong in {"drift": 0.9, "label": "x" * 300}.items():
        with pytest.raises(quorlock.ConfigError) as raised:
            connect(**{keyword: wrong})
        assert not any(source in str(raised.value) for source in ["QUORLOCK_", "quorlock.toml"])
    file.unlink()
    monkeypatch.setenv("QUORLOCK_NODES", ",".join(nodes.urls))
    monkeypatch.setenv("QUORLOCK_TTL", "15s")
    with pytest.raises(quorlock.ConfigError, match="15s.*max_ttl of 12s"):
        connect()


@pytest.mark.parametrize("connect", CONNECTS)
def test_the_file_is_the_one_that_the_command_would_read(
    connect: Connect, host: Path, tmp_path: Path, nodes: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ttl(seconds: int) -> list[str]:
        return [f'max-ttl = "{seconds}s"', 'ttl = "40s"']

    write(tmp_path / "home/quorlock.toml", nodes)
    (tmp_path / "home/quorlock").mkdir()
    write(tmp_path / "home/quorlock/quorlock.toml", nodes, *ttl(21))
    with pytest.raises(quorlock.ConfigError, match="max_ttl of 21s"):
        connect()
    write(host / "quorlock.toml", nodes, *ttl(22))
    with pytest.raises(quorlock.ConfigError, match="max_ttl of 22s"):
        connect()
    monkeypatch.setenv("QUORLOCK_CONFIG", str(write(tmp_path / "named.toml", nodes, *ttl(23))))
    with pytest.raises(quorlock.ConfigError, match="max_ttl of 23s"):
        connect()
    with pytest.raises(quorlock.ConfigError, match="max_ttl of 24s"):
        connect(config=write(tmp_path / "trusted.toml", nodes, *ttl(24)))
    with pytest.raises(quorlock.ConfigError, match="give either"):
        connect(nodes.urls, config=tmp_path / "trusted.toml")


@pytest.mark.parametrize("connect", CONNECTS)
def test_without_nodes_the_three_ways_to_give_them_are_named(connect: Connect) -> None:
    with pytest.raises(quorlock.ConfigError) as raised:
        connect()
    for way in ['connect("redis://a,redis://b,redis://c")', "QUORLOCK_NODES", "quorlock.toml", "config="]:
        assert way in str(raised.value)
    assert "--" not in str(raised.value), "it names no option of the command"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("nodes = [", "quorlock.toml: line 1"),
        ("tll = '3s'", "quorlock.toml: .*`tll`.*node-timeout"),
        ("ttl = 'soon'", "quorlock.toml: `ttl`"),
        ("password = 'Qq7Zz9'", "QUORLOCK_PASSWORD"),
        ("nodes = 'redis://a'\npassword-file = 'absent.toml'", "`password-file` in ./quorlock.toml: .*./absent.toml"),
        ("nodes = 'redis://a'\npassword-command = 'exit 3'", "`password-command` in .*: .*exit status: 3"),
        ("nodes = 'redis://a'\ntls-cert = 'me.pem'", "`tls-cert` in .*: .*give both tls_cert and tls_key"),
    ],
)
@pytest.mark.parametrize("connect", CONNECTS)
def test_a_mistake_names_the_file(connect: Connect, host: Path, text: str, named: str) -> None:
    (host / "quorlock.toml").write_text(text)
    with pytest.raises(quorlock.ConfigError, match=named) as raised:
        connect()
    assert "Qq7Zz9" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("QUORLOCK_TTL", "soon", "the variable QUORLOCK_TTL: `ttl`"),
        ("QUORLOCK_NODES", ",", "the variable QUORLOCK_NODES names no node"),
        ("QUORLOCK_DRIFT", "much", "the variable QUORLOCK_DRIFT"),
        ("QUORLOCK_PASSWORD_FILE", "absent", "the variable QUORLOCK_PASSWORD_FILE: cannot read"),
        ("QUORLOCK_PASSWORD_COMMAND", "exit 3", "the variable QUORLOCK_PASSWORD_COMMAND: .*exit status: 3"),
        ("QUORLOCK_TLS_CERT", "absent", "the variable QUORLOCK_TLS_CERT: .*give both"),
        ("QUORLOCK_LOG", "201", "the variable QUORLOCK_LOG: "),
        ("QUORLOCK_CONFIG", "absent.toml", "absent.toml"),
        ("QUORLOCK_NODES", "redis://a\udcff", "the variable QUORLOCK_NODES is not valid UTF-8"),
    ],
)
@pytest.mark.parametrize("connect", CONNECTS)
def test_a_mistake_names_the_variable(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, name: str, value: str, named: str
) -> None:
    monkeypatch.setenv("QUORLOCK_NODES", "redis://a")
    monkeypatch.setenv(name, value)
    with pytest.raises(quorlock.ConfigError, match=named):
        connect()


@pytest.mark.parametrize("connect", CONNECTS)
def test_addresses_in_the_call_leave_environment_and_file_alone(
    connect: Connect, host: Path, nodes: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host / "quorlock.toml").write_text("nonsense")
    monkeypatch.setenv("QUORLOCK_TTL", "soon")
    connect(nodes.urls)


def test_a_file_that_others_can_write_is_refused_unless_the_call_names_it(
    host: Path, nodes: Servers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(host / "quorlock.toml", nodes)
    file.chmod(0o666)
    with caplog.at_level(logging.WARNING, "quorlock"), pytest.raises(quorlock.ConfigError, match="no nodes"):
        quorlock.connect()
    (record,) = [record for record in caplog.records if "not read" in record.getMessage()]
    assert "writable by all users" in record.getMessage()
    assert "pass config=./quorlock.toml" in record.getMessage()
    monkeypatch.setenv("QUORLOCK_CONFIG", "quorlock.toml")
    with pytest.raises(quorlock.ConfigError, match="writable by all users"):
        quorlock.connect()
    with quorlock.connect(config=file) as q, q.lock("trusted"):
        pass


def test_a_misspelt_variable_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("QUORLOCK_NODES", "redis://a")
    monkeypatch.setenv("QUORLOCK_NODE_TIMOUT", "1s")
    with caplog.at_level(logging.WARNING, "quorlock"):
        quorlock.connect()
    assert "QUORLOCK_NODE_TIMOUT" in caplog.text


@pytest.mark.parametrize("by", ["file", "command", "variable", "keyword"])
def test_the_password_is_where_the_settings_say(by: str, host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with servers(1) as nodes:
        nodes.command(0, "ACL", "SETUSER", "locks", "reset", "on", "~*", "&*", "+@all", ">s3cret words")
        address = f"redis://{nodes.urls[0].rpartition('@')[2]}"
        lines = [f"nodes = ['{address}']", "username = 'locks'", "restart-guard = 'off'"]
        if by == "file":
            (host / "password").write_text("s3cret words\n")
            (host / "password").chmod(0o600)
            lines.append("password-file = 'password'")
        elif by == "command":
            lines.append("password-command = 'echo s3cret words'")
        else:
            # It is not asked.
            lines.append("password-command = 'exit 3'")
        (host / "quorlock.toml").write_text("\n".join(lines))
        given = {"password": "s3cret words"} if by == "keyword" else {}
        if by == "variable":
            monkeypatch.setenv("QUORLOCK_PASSWORD", "s3cret words")
        with quorlock.connect(**given) as q:  # type: ignore[arg-type]
            # It connects later, and a file that was found from one folder must be found from others.
            monkeypatch.chdir("/")
            with q.lock("login"):
                pass


def test_a_child_connects_with_the_settings_that_its_parent_has_read(host: Path, nodes: Servers) -> None:
    file = write(host / "quorlock.toml", nodes, 'key-prefix = "parents:"')
    with quorlock.connect() as q:
        file.unlink()
        if (child := os.fork()) == 0:
            q.lock("of a child").acquire(keep=True)
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert stored(nodes, "parents:of a child")


COMMAND = Path(__file__).parents[2] / "target/debug/quorlock"


@pytest.mark.skipif(not COMMAND.exists(), reason="the command is not built")
def test_a_service_and_the_command_beside_it_exclude_each_other(host: Path, nodes: Servers) -> None:
    write(host / "quorlock.toml", nodes, 'key-prefix = "both:"')
    with quorlock.connect() as q:
        command = [str(COMMAND), "run", "--no-wait", "shared", "--", "true"]
        with q.lock("shared"):
            refused = end(start_command(command))
            assert refused.returncode == 75, refused.stderr
        assert end(start_command(command)).returncode == 0
        held = start_command([str(COMMAND), "run", "shared", "--", "sleep", "600"])
        try:
            eventually("the command to hold it", lambda: q.lock("shared").inspect().holder)
            assert q.lock("shared").try_acquire() is None
        finally:
            held.terminate()
            end(held)
