"""The settings of a coordinator and of its locks, from Python's types to those of the extension module."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict, get_args

from quorlock import _events, _habits, _quorlock
from quorlock._functions import refuse_uncallable
from quorlock.errors import ConfigError
from quorlock.votes import Waiting

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


class RawOptions(TypedDict, total=False):
    """The options that all kinds of lock have, as the extension module takes them."""

    ttl: float | None
    wait: float | None
    renew: float | None
    max_hold: float | None
    label: str | None
    fencing: bool
    on_wait: int | None


class LockOptions(TypedDict, total=False):
    """The options that all kinds of lock have: see `Coordinator.lock`."""

    ttl: Duration | None
    wait: Duration | Default | None
    renew: bool | Duration
    max_hold: Duration | None
    label: str | None
    fencing: bool
    on_lost: OnLost
    on_wait: Callable[[Waiting], object] | None


class RawHandoff(TypedDict):
    """How a lease is handed on within this process, as the extension module takes it."""

    handoff: int | None
    handoff_within: float | None


class SemaphoreOptions(LockOptions, total=False):
    """Those of a semaphore."""

    handoff: int | None
    handoff_within: Duration | None


class SeveralLockOptions(LockOptions, total=False):
    """Those of a lock of several names."""

    owner: _quorlock.Owner | None


class OneLockOptions(SeveralLockOptions, SemaphoreOptions, total=False):
    """Those of a lock of one name."""

    shared: bool
    metrics_class: str | None


class OnceOptions(TypedDict, total=False):
    """The options of `Coordinator.once`."""

    ttl: Duration | None
    max_hold: Duration | None
    label: str | None


class ElectionOptions(TypedDict, total=False):
    """The options of an election."""

    ttl: Duration | None
    wait: Duration | None
    max_hold: Duration | None
    on_wait: Callable[[Waiting], object] | None


class ConnectSettings(TypedDict, total=False):
    """The settings of a coordinator: see `connect`."""

    config: str | os.PathLike[str] | None
    ttl: Duration | None
    max_ttl: Duration | None
    key_prefix: str | None
    label: str | None
    username: str | None
    password: str | None
    password_file: str | os.PathLike[str] | None
    quorum: int | None
    node_timeout: Duration | None
    connect_timeout: Duration | None
    drift: float | None
    restart_guard: bool
    log: int | None
    tls_ca: str | os.PathLike[str] | None
    tls_cert: str | os.PathLike[str] | None
    tls_key: str | os.PathLike[str] | None
    tls_server_name: str | None


#: Longer than any TTL or wait, and short enough for every type of number.
_MOST_SECONDS = 1e10

#: More than there is of anything, and small enough for every type of number.
_MOST = 1_000_000


def seconds(duration: Duration | None, name: str = "a duration") -> float | None:
    """The seconds of a duration. It refuses what is none, and what is negative or beyond three centuries."""
    if duration is None:
        return None
    given = duration.total_seconds() if isinstance(duration, timedelta) else duration
    try:
        number = math.nan if isinstance(given, bool | str | bytes) else float(given)
    except (TypeError, ValueError):
        number = math.nan
    except OverflowError:
        number = math.inf
    if math.isnan(number):
        raise ConfigError(f"{name}={given!r}: a duration is a number of seconds, or a timedelta")
    if not 0 <= number <= _MOST_SECONDS:
        # A huge number would be shown with all its digits.
        shown = f"{number:g}" if abs(number) > _MOST_SECONDS else given
        raise ConfigError(f"{name}={shown}: give 0 to {_MOST_SECONDS:g} seconds")
    return number


def needed(duration: Duration, name: str) -> float:
    """The same of a duration that cannot be left out: `None` is no end in other calls."""
    if duration is None:
        raise ConfigError(f"{name}=None: give a number of seconds, or a timedelta")
    return seconds(duration, name) or 0.0


def whole(number: int | None, name: str, least: int = 1, most: int = _MOST) -> int | None:
    """A number of things. It refuses what is none, and what no one can have. The library refuses what is above `most`,
    and says why."""
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= _MOST:
        shown = number if not isinstance(number, int) or abs(number) < 10**18 else "a huge number"
        raise ConfigError(f"{name}={shown}: give a whole number from {least} to {most}")
    return number


def permits(number: int) -> int:
    """The permits of a semaphore."""
    return whole(number, "permits", most=64) or 0


def raises(on_lost: OnLost) -> bool:
    """Whether a context raises a loss at its end."""
    if on_lost not in get_args(OnLost):
        raise ConfigError(f'on_lost={on_lost!r}: give "raise" or "warn"')
    return on_lost == "raise"


def several(names: Iterable[str]) -> list[str]:
    """The names of several locks. A string is one name, and not a list of its letters."""
    if isinstance(names, str | bytes):
        raise ConfigError(f"lock_all({names!r}): give a list of names, or use lock() for one")
    if not isinstance(names, Iterable):
        raise ConfigError(f"lock_all({names!r}): give a list of names; an empty one locks nothing")
    return [unicode("a name", name) for name in names]


def owner(given: _quorlock.Owner | None) -> _quorlock.Owner | None:
    """Refuses another's word for an owner."""
    if given is not None and not isinstance(given, _quorlock.Owner):
        raise ConfigError(f"owner={given!r}: write owner=quorlock.Owner(), and label= for what others see")
    return given


def waiting(wait: Duration | Default | None) -> float | None:
    """The seconds of a wait, negative for ever."""
    if wait is None:
        return -1.0
    if isinstance(wait, Default):
        return None
    try:
        return seconds(wait, "wait")
    except ConfigError as error:
        raise ConfigError(f"{error}; wait=None waits for ever, wait=0 asks once") from None


def renewing(renew: bool | Duration) -> float | None:
    """The seconds between renewals: `None` for the default, negative for none."""
    if renew is True:
        return None
    if renew is False:
        return -1.0
    every = None if renew is None else seconds(renew, "renew")
    if not every:
        raise ConfigError(
            f"renew={renew}: renew=False leaves the renewal to you, renew=True renews in time, and a number of seconds "
            "sets how often"
        )
    return every


def following(on_wait: Callable[[Waiting], object] | None) -> int | None:
    """The number of a callback for waits."""
    if on_wait is None:
        return None
    refuse_uncallable("on_wait", on_wait, "a Waiting")
    return _events.new_number()


def handing_on(given: SemaphoreOptions) -> RawHandoff:
    """How often, and for how long, a lease is handed on within this process."""
    return {
        "handoff": whole(given.get("handoff"), "handoff", least=0),
        "handoff_within": seconds(given.get("handoff_within"), "handoff_within"),
    }


def options(given: LockOptions) -> RawOptions:
    """The options of a lock, for the extension module."""
    _events.follow_logging()
    return {
        "ttl": seconds(given.get("ttl"), "ttl"),
        "wait": waiting(given.get("wait", DEFAULT)),
        "renew": renewing(given.get("renew", True)),
        "max_hold": seconds(given.get("max_hold"), "max_hold"),
        "label": text("label", given.get("label")),
        "fencing": flag("fencing", given.get("fencing", True)),
        "on_wait": following(given.get("on_wait")),
    }


def connect(nodes: str | Iterable[str] | None, given: ConnectSettings) -> _quorlock.Connection:
    """A coordinator, which contacts no one yet."""
    _habits.refuse("connect", given.keys() - ConnectSettings.__optional_keys__)
    if nodes is not None and given.get("config") is not None:
        raise ConfigError("nodes and config: give either the addresses, or the file that has them")
    _events.refuse_green_threads()
    _events.follow_logging()
    checked: dict[str, Any] = {**given}
    for name in checked.keys() & {"ttl", "max_ttl", "node_timeout", "connect_timeout"}:
        checked[name] = seconds(checked[name], name)
    for name in checked.keys() & {"config", "password_file", "tls_ca", "tls_cert", "tls_key"}:
        checked[name] = path(name, checked[name])
    for name in checked.keys() & {"key_prefix", "label", "username", "password", "tls_server_name"}:
        checked[name] = text(name, checked[name])
    if checked.get("restart_guard") is not None:
        flag("restart_guard", checked["restart_guard"])
    if isinstance(drift := given.get("drift"), bool) or not isinstance(drift, int | float | None):
        raise ConfigError(f"drift={drift!r}: give a number")
    checked["quorum"] = whole(given.get("quorum"), "quorum")
    checked["log"] = 0 if given.get("log") == 0 else whole(given.get("log"), "log", least=0, most=200)
    if nodes is None:
        return _quorlock.Connection(None, **checked)
    addresses = [nodes] if isinstance(nodes, str | bytes) else nodes
    return _quorlock.Connection([unicode("an address", node) for node in addresses], **checked)


def flag(name: str, value: bool) -> bool:
    """Refuses what is neither true nor false."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name}={value!r}: give True or False")
    return value


def path(name: str, given: str | os.PathLike[str] | None) -> str | None:
    """The path of a file."""
    try:
        return None if given is None else os.fsdecode(given)
    except TypeError:
        raise ConfigError(f"{name}={given!r}: give the path of a file") from None


def text(name: str, value: str | None) -> str | None:
    """A keyword whose value is text, which may be a password."""
    return None if value is None else unicode(name, value)


def token(value: bytes) -> bytes:
    """The token of a holder."""
    if not isinstance(value, bytes):
        raise ConfigError(f"the token is of the type {type(value).__name__}: give that of inspect().holder, in bytes")
    return value


def unicode(what: str, text: str) -> str:
    """Refuses text that is not Unicode, as bytes of the environment may be, without repeating it.

    Python's own exception holds the whole text, and here that is a password, or an address with one.
    """
    if not isinstance(text, str):
        raise ConfigError(f"{what} is of the type {type(text).__name__}: give a str")
    try:
        text.encode()
    except UnicodeEncodeError:
        pass
    else:
        return text
    # Not in the handler, whose exception would be the context of this one.
    raise ConfigError(f"{what} is not valid Unicode: it contains a lone surrogate")
