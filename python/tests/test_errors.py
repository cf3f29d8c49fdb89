"""Every exception of the package, and what settings are refused with."""

from __future__ import annotations

import copy
import pickle
import re
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import quorlock
from programs import Face, eventually, stored
from quorlock import errors, redis_lock
from quorlock.errors import ConfigError
from quorlock.testing import Servers, servers

CLASSES = [getattr(errors, name) for name in errors.__all__] + [redis_lock.LockError, redis_lock.LockNotOwnedError]


def with_all_it_carries(kind: type[quorlock.QuorlockError], report: quorlock.VoteReport) -> quorlock.QuorlockError:
    """An exception with every attribute that its class has."""
    error = kind("what happened")
    for name, value in {"resource": "orders/42", "reason": "expired", "waited": 1.5, "report": report}.items():
        if hasattr(error, name):
            setattr(error, name, value)
    if isinstance(error, quorlock.Full):
        error.holders = [None, report.holder]
    if isinstance(error, redis_lock.LockError):
        error.lock_name = "orders/42"
    return error


def shown(error: BaseException) -> str:
    return f"{type(error)} {error} {error.args} {error.__dict__}"


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_exception_survives_a_process_pool_and_a_copy(q: quorlock.Coordinator, kind: Any) -> None:
    with q.lock("pickled") as lease:
        assert lease.token
        report = q.lock("pickled").inspect()
    assert report.holder is not None
    error = with_all_it_carries(kind, report)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert shown(pickle.loads(pickle.dumps(error, protocol))) == shown(error)
    for again in [copy.copy(error), copy.deepcopy(error)]:
        assert shown(again) == shown(error)


@pytest.mark.parametrize("aio", [False, True])
def test_a_setting_that_is_none_is_refused_in_words_of_python(nodes: Servers, aio: bool) -> None:
    q: Any = nodes.aio_connect() if aio else nodes.connect()
    refused: list[tuple[dict[str, Any], str]] = [
        ({"ttl": -1}, "ttl=-1: give 0 to"),
        ({"ttl": 10**400}, "ttl=inf: give 0 to"),
        ({"ttl": 1e300}, r"ttl=1e\+300: give 0 to"),
        ({"ttl": timedelta(seconds=-2)}, "ttl=-2.0: give"),
        ({"ttl": float("nan")}, "ttl=nan: a duration is"),
        ({"ttl": "30"}, "ttl='30': a duration is"),
        ({"ttl": True}, "ttl=True: a duration is"),
        ({"max_hold": -0.5}, "max_hold=-0.5"),
        ({"wait": -1}, "wait=None waits for ever"),
        ({"renew": None}, "renew=None: renew=False"),
        ({"renew": 0}, "renew=0: renew=False"),
        # 62,000 commands per second.
        ({"renew": 1e-9}, "renewing every 1ns is too frequent: .* every 10ms or less often"),
        ({"renew": 1e-12}, "renewing every 0ns is too frequent"),
        ({"on_lost": "Raise"}, 'on_lost=\'Raise\': give "raise" or "warn"'),
        ({"on_lost": None}, "on_lost=None"),
        ({"on_wait": 5}, "on_wait=5: give a function of one argument, which is a Waiting"),
        ({"on_wait": later}, "its body would not run, since a thread calls it"),
        ({"label": 5}, "label is of the type int: give a str"),
        ({"label": "\udcff"}, "label is not valid Unicode"),
        ({"fencing": None}, "fencing=None: give True or False"),
    ]
    for settings, words in refused:
        for make in [lambda s: q.lock("n", **s), lambda s: q.lock_all(["n"], **s), lambda s: q.semaphore("n", 2, **s)]:
            with pytest.raises(ConfigError, match=words) as raised:
                make(settings)
            assert len(str(raised.value)) < 200
    for permits in [-1, 0, 2.5, True, 10**30]:
        with pytest.raises(ConfigError, match=r"permits=.*: give a whole number from 1 to 64$"):
            q.semaphore("n", permits)
    with pytest.raises(ConfigError, match="handoff=-1: give a whole number from 0 to 1000000$"):
        q.lock("n", handoff=-1)
    for name in [42, b"x", None, "\udcff"]:
        for call in [q.lock, q.election, lambda name: q.semaphore(name, 2), lambda name: q.lock_all([name])]:
            with pytest.raises(ConfigError, match="name is (of the type .*: give a str|not valid Unicode)"):
                call(name)
    for options, words in [
        ({"shared": "x"}, "shared='x': give True"),
        ({"metrics_class": 5}, "metrics_class is of the"),
        ({"owner": "me"}, r"owner='me': write owner=quorlock.Owner\(\)"),
    ]:
        with pytest.raises(ConfigError, match=words):
            q.lock("n", **options)
    with pytest.raises(TypeError, match=r"connect\(\) makes coordinators"):
        type(q)("redis://a")
    for names in ["abc", b"abc", None]:
        with pytest.raises(ConfigError, match="give a list of names"):
            q.lock_all(names)
    connect = quorlock.aio.connect if aio else quorlock.connect
    for settings, words in [
        ({"quorum": -1}, "quorum=-1: give a whole number"),
        ({"node_timeout": -1}, "node_timeout=-1"),
        ({"log": -1}, "log=-1: give a whole number from 0 to 200$"),
        ({"label": "x" * 201}, "a label of 201 bytes is longer than the 200 allowed"),
        ({"nodes": b"redis://a"}, "an address is of the type bytes: give a str"),
        ({"key_prefix": 5}, "key_prefix is of the type int: give a str"),
        ({"password": b"s3cret"}, "^password is of the type bytes: give a str"),
        ({"password_file": 5}, "password_file=5: give the path of a file"),
        ({"restart_guard": "no"}, "restart_guard='no': give True or False"),
        ({"drift": "1 %"}, "drift='1 %': give a number"),
    ]:
        with pytest.raises(ConfigError, match=words):
            connect(**{"nodes": "redis://a", **settings})


async def later(_: object) -> None: ...


def test_what_a_lease_cannot_do_is_refused_and_it_goes_on(face: Face) -> None:
    q, done = face
    lease = done(q.lock(f"goes on {type(q).__module__}").acquire())
    calls: dict[str, Callable[[], Any]] = {
        "callback=None: give a function of one argument": lambda: lease.on_lost(None),
        "callback=.*: its body would not run, since a thread": lambda: lease.on_lost(later),
        "ttl=None: give a number of seconds": lambda: lease.extend(None),
        "time=None: give a number of seconds": lambda: lease.retain(None),
        "the note is of the type int": lambda: lease.retain(1, 5),
        "the value is of the type int": lambda: q.election("e").campaign(5),
        "the token is of the type str": lambda: q.lock("n").revoke("a"),
        "the prefix is of the type int": lambda: q.names(5),
    }
    for words, call in calls.items():
        with pytest.raises(ConfigError, match=words):
            done(call())
    lease.check()
    done(lease.release())


def test_what_cannot_be_called_is_not_decorated(face: Face) -> None:
    q, _ = face
    for decorate in [q.lock("n"), q.once("n", every=60)]:
        with pytest.raises(TypeError, match="a lock decorates a function, and 5 cannot be called"):
            decorate(5)


def test_closing_without_a_timeout_waits_for_nodes_that_hang() -> None:
    with servers(3) as nodes:
        q = nodes.connect()
        q.lock("closed for good").acquire(keep=True)
        for index in [0, 1]:
            nodes.freeze(index)
        began = time.monotonic()
        threading.Timer(0.5, lambda: [nodes.thaw(index) for index in [0, 1]]).start()
        q.close(timeout=None)
        assert time.monotonic() - began >= 0.4
        assert not stored(nodes, "closed for good")


def test_where_a_password_or_a_key_prefix_is_set_is_said_in_words_of_python() -> None:
    with servers(1) as nodes:
        nodes.command(0, "ACL", "SETUSER", "anna", "on", ">pw", "~app:*", "&*", "+@all")
        host = nodes.urls[0].rpartition("@")[2]
        for address, words in [
            (f"redis://{host}", "it requires a password; give .*, or password or password_file of connect()"),
            (f"redis://anna@{host}", "there is a user but no password; give .* password_file of connect()"),
            (f"redis://anna:no@{host}", "rejects the password for the user `anna`.* password_file of connect()"),
            (f"redis://anna:pw@{host}", "use the prefix of keys that it may touch .`key_prefix` of connect."),
        ]:
            with quorlock.connect(address, restart_guard=False) as q:
                with pytest.raises(quorlock.Misconfigured, match=words) as refused:
                    q.lock("n").acquire()
                texts = [str(refused.value), *(str(finding) for finding in q.doctor())]
                assert not [text for text in texts if re.search("--[a-z]|Builder::|QUORLOCK_", text)], texts
        anna = {"username": "anna", "password": "pw", "key_prefix": "app:"}
        with quorlock.connect(f"redis://{host}", restart_guard=False, **anna) as q:  # type: ignore[arg-type]
            q.lock("n", wait=0).acquire().release()


@pytest.mark.parametrize("wrong", [1, 5])
def test_a_database_that_a_server_has_not_is_a_wrong_address_and_no_outage(wrong: int) -> None:
    with servers(wrong) as nodes:
        with quorlock.connect([f"{url}/99" for url in nodes.urls], restart_guard=False) as q:
            with pytest.raises(quorlock.Misconfigured, match="no database of the number in the address: its setting"):
                q.lock("n").acquire()
            failed = next(finding for finding in q.doctor() if finding.check == "failed")
            assert failed.cure == "correct the address or the setting that the error names"
        with pytest.raises(redis_lock.LockError) as refused:
            redis_lock.Lock([f"{url}/99" for url in nodes.urls], "n").acquire()
        assert not isinstance(refused.value, redis_lock.LockUnavailableError)


def test_servers_for_tests_refuse_what_they_cannot_do() -> None:
    for count in [0, -1]:
        with pytest.raises(ConfigError, match=f"count={count}: give a whole number from 1"):
            servers(count)
    with servers(1) as nodes:
        with pytest.raises(RuntimeError, match="^ERR Unknown option"):
            nodes.command(0, "CONFIG", "SET", "maxmemroy", "1mb")
        without_words: Any = nodes.command
        with pytest.raises(TypeError, match="word"):
            without_words(0)
        with pytest.raises(IndexError, match="no server -1"):
            nodes.kill(-1)


def test_an_exception_in_a_handler_has_what_was_handled_as_its_context(face: Face) -> None:
    """As every exception of Python has: that of the work is in the traceback."""
    q, done = face
    name = f"in context {type(q).__module__}"
    held = done(q.lock(name).acquire())
    lost = done(q.lock(f"{name}, lost", max_hold=0.05).acquire())
    eventually("the end of the lease", lost.lost.is_set)
    calls: dict[type[Exception], Callable[[], Any]] = {
        errors.Lost: lambda: done(lost.release()),
        errors.Held: lambda: done(q.lock(name, wait=0).acquire()),
        errors.ConfigError: lambda: q.lock(""),
    }
    for kind, call in calls.items():
        assert isinstance(context(kind, call), KeyError), kind
    done(held.release())
    done(q.close())
    assert isinstance(context(errors.Closed, lambda: q.lock(name)), KeyError)
    with pytest.raises(errors.Closed) as alone:
        q.lock(name)
    assert alone.value.__context__ is None


def context(kind: type[Exception], call: Callable[[], Any]) -> BaseException | None:
    """The context of what the call raises while a `KeyError` is handled."""
    with pytest.raises(kind) as raised:
        try:
            raise KeyError("the work")
        finally:
            call()
    found = raised.value.__context__
    # What an event loop handles in between, such as its `Runner`, has the same.
    while found is not None and not isinstance(found, KeyError):
        found = found.__context__
    return found


@pytest.mark.parametrize("aio", [False, True])
def test_a_file_that_cannot_be_used_is_refused_with_the_cause(aio: bool, tmp_path: Path) -> None:
    absent, nonsense = tmp_path / "absent.pem", tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    connect: Any = quorlock.aio.connect if aio else quorlock.connect
    causes = []
    for file in [absent, nonsense]:
        with pytest.raises(ConfigError, match=f"{file} cannot be used as the file of a certificate: ") as refused:
            connect("rediss://a", tls_ca=str(file))
        causes.append(str(refused.value).partition("certificate: ")[2])
    assert causes[0].startswith("No such file or directory")
    assert causes[1] != causes[0]


def test_what_is_missing_for_tls_is_named_as_python_names_it(nodes: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere")
    monkeypatch.setenv("SSL_CERT_DIR", "/nowhere")
    with quorlock.connect(nodes.urls[0].replace("redis:", "rediss:")) as q:
        with pytest.raises(quorlock.NoQuorum) as refused:
            q.lock("n", wait=0).acquire()
        assert refused.value.report is not None
        for text in [str(refused.value), str(refused.value.report), refused.value.report.votes[0].detail]:
            assert "tls_ca or SSL_CERT_FILE" in text
            assert "--" not in text
            assert "::" not in text


def test_every_object_shows_its_name(q: quorlock.Coordinator, nodes: Servers) -> None:
    aio = nodes.aio_connect()
    shown = re.sub("//.*@", "//", nodes.urls[4])
    assert shown in repr(q)
    assert shown in repr(aio)
    for module, of in [("quorlock", q), ("quorlock.aio", aio)]:
        made: list[tuple[Any, str, str]] = [
            (of.lock("a\n", ttl=5, wait=0), "a\n", r"Lock of `a\n`, ttl=5, wait=0"),
            (of.lock("a", shared=True, wait=None), "a", "Lock of `a` for readers, wait=None"),
            (of.lock("a", renew=False, fencing=False), "a", "Lock of `a`, renew=False, fencing=False"),
            (of.lock("a", renew=2, metrics_class="c"), "a", "Lock of `a`, renew=2, metrics_class=c"),
            (of.lock_all(["a", "b"], label="me"), "a,b", "Lock of `a`, `b`, label=me"),
            (of.semaphore("a", 3, max_hold=9), "a", "Semaphore of `a` with 3 permits, max_hold=9"),
            (of.election("a", wait=7), "a", "Election of `a`, wait=7"),
        ]
        for thing, name, text in made:
            assert thing.name == name
            assert repr(thing) == f"<{module}.{text}>"
    secret = quorlock.connect("redis://:s3cret@a")
    assert "s3cret" not in repr(secret)
    secret.close()
    assert "s3cret" not in repr(secret)
