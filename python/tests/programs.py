"""Runs programs of their own, and waits for what they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar

from quorlock.testing import Servers

#: Generous for a busy machine: a test that passes does not wait for so long.
SOON = 60.0

_T = TypeVar("_T")

#: A coordinator, and what waits for the result of a call of it: for threads, or for asyncio.
Face = tuple[Any, Callable[[Any], Any]]

#: What each program begins with. It gets the addresses as arguments.
_BEGIN = """
import asyncio, os, signal, sys, threading, time
import quorlock
def connect(**settings):
    return quorlock.connect(sys.argv[1:], restart_guard=False, **settings)
def aio_connect(**settings):
    from quorlock import aio
    return aio.connect(sys.argv[1:], restart_guard=False, **settings)
def sleep_until_a_signal():
    # Python acts on a signal that comes just before a sleep only when that has ended.
    while True: time.sleep(0.1)
"""


def start(nodes: Servers, code: str) -> subprocess.Popen[str]:
    """Starts a program on these servers."""
    return start_command([sys.executable, "-X", "faulthandler", "-u", "-c", _BEGIN + code, *nodes.urls])


def start_command(words: list[str]) -> subprocess.Popen[str]:
    """Starts a command."""
    return subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Its children end with it if it hangs.
        start_new_session=True,
    )


def run(nodes: Servers, code: str) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end."""
    return end(start(nodes, code))


def end(program: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """Waits for the end of a program, which is killed if it hangs."""
    try:
        out, err = program.communicate(timeout=SOON)
    except subprocess.TimeoutExpired:
        os.killpg(program.pid, signal.SIGKILL)
        out, err = program.communicate()
        raise AssertionError(f"it hung:\n{out}\n{err}") from None
    return subprocess.CompletedProcess(program.args, program.returncode, out, err)


def set_up_django() -> None:
    """Django for the tests of this process, with a database in memory."""
    import django
    from django.conf import settings
    from django.core.management import call_command

    if not settings.configured:
        settings.configure(
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
            DEFAULT_AUTO_FIELD="django.db.models.AutoField",
            INSTALLED_APPS=["django_celery_beat"] if find_spec("django_celery_beat") else [],
            USE_TZ=True,
        )
        django.setup()
        call_command("migrate", verbosity=0)


def accounts() -> Any:
    """The model of the page, with its table."""
    set_up_django()
    from django.apps import apps
    from django.db import connection, models

    if "shown" in apps.all_models and "account" in apps.all_models["shown"]:
        return apps.all_models["shown"]["account"]

    class Account(models.Model):
        balance = models.IntegerField(default=0)
        fencing_token = models.BigIntegerField(default=0)

        class Meta:
            app_label = "shown"

    with connection.schema_editor() as editor:
        editor.create_model(Account)
    return Account


def eventually(what: str, look: Callable[[], _T | None]) -> _T:
    """Waits until `look` returns something true."""
    deadline = time.monotonic() + SOON
    while True:
        if found := look():
            return found
        assert time.monotonic() < deadline, f"not within {SOON:.0f} s: {what}"
        time.sleep(0.01)


def stored(nodes: Servers, name: str) -> list[int]:
    """The servers that store a lock of this name."""
    return [index for index in range(len(nodes.urls)) if nodes.command(index, "EXISTS", name) != "0"]


def eventually_gone(nodes: Servers, name: str) -> None:
    """Waits until no server stores the lock."""
    eventually(f"`{name}` to be gone", lambda: not stored(nodes, name))
