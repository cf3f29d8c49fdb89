"""The settings of a coordinator and of its locks, from Python's types to those of the extension module."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta
from typing import Final, Literal, TypedDict

from quorlock import _events, _quorlock
from quorlock.errors import ConfigError

#: Seconds, or a `timedelta`.
Duration = float | timedelta


class Default:
    """The type of `DEFAULT`, where `None` has a meaning of its own."""

    def __repr__(self) -> str:
        return "..."


#: What the coordinator or the library has.
DEFAULT: Final = Default()

#: What a context manager does when its lock was lost while the body ran.
OnLost = Literal["raise", "warn"]


class LockOptions(TypedDict, total=False):
    """The options that all kinds of lock have."""

    ttl: float | None
    wait: float | None
    renew: float | None
    max_hold: float | None
    label: str | None
    fencing: bool


def seconds(duration: Duration | None) -> float | None:
    """The seconds of a duration."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def waiting(wait: Duration | Default | None) -> float | None:
    """The seconds of a wait, negative for ever."""
    if wait is None:
        return -1.0
    if isinstance(wait, Default):
        return None
    most = seconds(wait)
    if most is not None and most < 0:
        raise ConfigError(f"wait={wait}: wait=None waits for ever, wait=0 asks once")
    return most


def renewing(renew: bool | Duration) -> float | None:
    """The seconds between renewals: `None` for the default, 0 for none."""
    if renew is True:
        return None
    if renew is False:
        return 0.0
    every = seconds(renew)
    if not every:
        raise ConfigError("renew=0: renew=False leaves the renewal to you, renew=True renews in time")
    return every


def options(
    ttl: Duration | None,
    wait: Duration | Default | None,
    renew: bool | Duration,
    max_hold: Duration | None,
    label: str | None,
    fencing: bool,
) -> LockOptions:
    """The options of a lock."""
    _events.follow_logging()
    return {
        "ttl": seconds(ttl),
        "wait": waiting(wait),
        "renew": renewing(renew),
        "max_hold": seconds(max_hold),
        "label": label,
        "fencing": fencing,
    }


def connect(
    nodes: str | Iterable[str] | None,
    *,
    ttl: Duration | None,
    max_ttl: Duration | None,
    key_prefix: str | None,
    label: str | None,
    username: str | None,
    password: str | None,
    quorum: int | None,
    node_timeout: Duration | None,
    connect_timeout: Duration | None,
    drift: float | None,
    restart_guard: bool,
    tls_ca: str | os.PathLike[str] | None,
    tls_cert: str | os.PathLike[str] | None,
    tls_key: str | os.PathLike[str] | None,
    tls_server_name: str | None,
) -> _quorlock.Connection:
    """A coordinator, which contacts no one yet."""
    if nodes is None:
        nodes = os.environ.get("QUORLOCK_NODES")
        if not nodes:
            raise ConfigError("no nodes: give their addresses, or set QUORLOCK_NODES")
    _events.follow_logging()
    return _quorlock.Connection(
        [unicode("an address", node) for node in ([nodes] if isinstance(nodes, str) else nodes)],
        ttl=seconds(ttl),
        max_ttl=seconds(max_ttl),
        key_prefix=key_prefix,
        label=label,
        username=username,
        password=None if password is None else unicode("the password", password),
        quorum=quorum,
        node_timeout=seconds(node_timeout),
        connect_timeout=seconds(connect_timeout),
        drift=drift,
        restart_guard=restart_guard,
        tls_ca=_path(tls_ca),
        tls_cert=_path(tls_cert),
        tls_key=_path(tls_key),
        tls_server_name=tls_server_name,
    )


def unicode(what: str, text: str) -> str:
    """Refuses text that is not Unicode, as bytes of the environment may be, without repeating it.

    Python's own exception holds the whole text, and here that is a password, or an address with one.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        pass
    else:
        return text
    # Not in the handler, whose exception would be the context of this one.
    raise ConfigError(f"{what} is not valid Unicode: it contains a lone surrogate")


def _path(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)
