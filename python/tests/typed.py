"""What type checkers accept and refuse. It is checked with the package, and never run: each `ignore` must be needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import quorlock
from quorlock import aio


def blocking(q: quorlock.Coordinator) -> None:
    @q.lock("plain")
    def plain(number: int) -> str:
        return str(number)

    word: str = plain(1)
    plain("1")  # type: ignore[arg-type]

    @q.lock("coroutine")
    async def coroutine() -> None: ...

    coroutine()  # type: ignore[operator]

    @q.semaphore("generator", 2)
    def generator() -> Generator[int, None, None]:
        yield 1

    generator()  # type: ignore[operator]

    @q.semaphore("async generator", 2)
    async def async_generator() -> AsyncIterator[int]:
        yield 1

    async_generator()  # type: ignore[operator]

    @q.lock("iterator")
    def iterator() -> map[str]:
        return map(str, [1])

    iterator()  # type: ignore[operator]

    @q.lock("context")
    @contextmanager
    def context() -> Iterator[None]:
        yield

    context()  # type: ignore[operator]

    with q.lock("with") as lease:
        number: int | None = lease.fencing_token
    with lease as again:
        number = again.permit
    maybe: quorlock.Lease | None = q.lock("kept").try_acquire(keep=True)
    q.lock("kept").acquire(keep=True).check()
    maybe.check()  # type: ignore[union-attr]
    q.lock("typo", on_lost="Raise")  # type: ignore[arg-type]
    q.lock("timeout", timeout=5)  # type: ignore[call-arg]
    q.lock("notice", notice=1)  # type: ignore[call-arg]
    q.lock_all(["shared"], shared=True)  # type: ignore[call-arg]
    q.lock("waits", on_wait=lambda waiting: print(waiting.ahead + 1), owner=quorlock.Owner(), handoff=1)
    q.semaphore("handed on", 2, handoff_within=timedelta(seconds=5))
    q.lock("waits", on_wait=lambda: None)  # type: ignore[arg-type, misc]
    q.lock_all(["handed on"], handoff=1)  # type: ignore[call-arg]
    q.lock_all(["handed on"], handoff_within=1)  # type: ignore[call-arg]
    for hold in q.lock("logged").log():
        since: datetime = hold.acquired
        print(since, hold.ended == "lost")  # type: ignore[comparison-overlap]
    q.semaphore("logged", 2).log()  # type: ignore[attr-defined]
    q.election("labelled", label="web-3")  # type: ignore[call-arg]
    q.semaphore("owned", 2, owner=quorlock.Owner())  # type: ignore[call-arg]
    quorlock.connect(config="quorlock.toml")
    q.lock("blocking").acquire(blocking=False)  # type: ignore[arg-type]
    q.lock("release").release()  # type: ignore[attr-defined]

    @q.once("once", every=60)
    def once(number: int) -> str:
        return str(number)

    perhaps: str | None = once(1)
    word = once(1)  # type: ignore[assignment]
    q.once("waits", every=60, wait=5)  # type: ignore[call-arg]
    print(perhaps)
    print(word, number)


async def on_a_loop(q: aio.Coordinator) -> None:
    @q.lock("coroutine")
    async def coroutine(number: int) -> str:
        return str(number)

    word: str = await coroutine(1)
    await coroutine("1")  # type: ignore[arg-type]

    @q.lock("plain")  # type: ignore[arg-type]
    def plain() -> None: ...

    async with q.lock("with") as lease:
        number: int | None = lease.fencing_token
    async with lease as again:
        number = again.permit
    with lease:  # type: ignore[attr-defined]
        pass

    @q.once("once", every=60)
    async def once(number: int) -> str:
        return str(number)

    perhaps: str | None = await once(1)
    q.lock("notice", notice=1, shared=True, handoff_within=5)
    answered: int = (await q.lock("logged").log()).report.granted
    q.semaphore("shared", 2, shared=True)  # type: ignore[call-arg]
    print(perhaps)
    print(word, number, answered)
