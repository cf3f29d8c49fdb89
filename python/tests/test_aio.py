"""The same for asyncio: cancellation above all."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import quorlock
from programs import SOON, eventually, eventually_gone, run, stored
from quorlock import aio
from quorlock.testing import Servers, servers


def test_the_readme_s_example_works(nodes: Servers) -> None:
    async def main() -> None:
        async with nodes.aio_connect() as q:
            async with q.lock("orders/42", ttl=30, wait=10) as lease:
                lease.check()
                assert lease.fencing_token is not None
                eventually("all nodes to store it", lambda: stored(nodes, "orders/42") == [0, 1, 2, 3, 4])
            assert lease.lost.reason == "released"

    asyncio.run(main())


def test_a_second_close_does_nothing(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret")

    async def main() -> None:
        q = aio.connect("redis://127.0.0.1:1", password_file=str(password))
        await q.close()
        # What only a new coordinator would read.
        password.unlink()
        await asyncio.gather(q.close(), q.close())
        assert len(aio._reactors[asyncio.get_running_loop()]._futures) == 0

    asyncio.run(main())


def test_a_child_closes_what_it_has_not_used(nodes: Servers) -> None:
    ended = run(
        nodes,
        """
q = aio_connect()
if (child := os.fork()) == 0:
    asyncio.run(q.close())
    os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
    )
    assert ended.stdout == "3\n", ended.stderr


def lose(nodes: Servers) -> None:
    for index in range(len(nodes.urls)):
        nodes.kill(index)


def assert_not_cancelled() -> None:
    task = asyncio.current_task()
    assert task is not None
    # From Python 3.11 on, `asyncio.timeout` and task groups look at this.
    assert not hasattr(task, "cancelling") or task.cancelling() == 0


def test_a_loss_cancels_the_body_before_its_validity_ends_and_raises_lost() -> None:
    async def main() -> None:
        with servers(3) as nodes:
            async with nodes.aio_connect() as q:
                left = -1.0
                with pytest.raises(quorlock.Lost) as lost:
                    async with q.lock("lost", ttl=2) as lease:
                        lose(nodes)
                        try:
                            await asyncio.sleep(SOON)
                        finally:
                            left = lease.remaining
                assert left > 0
                assert lost.value.resource == "lost"
                assert lost.value.reason == "expired"
                assert isinstance(lost.value.__cause__, asyncio.CancelledError)
                assert_not_cancelled()

    asyncio.run(main())


def test_a_body_that_was_cancelled_raises_lost_though_a_loss_is_only_logged(nodes: Servers) -> None:
    async def main() -> None:
        async with nodes.aio_connect() as q:
            with pytest.raises(quorlock.Lost):
                async with q.lock("cancelled", max_hold=0.3, on_lost="warn"):
                    await asyncio.sleep(SOON)
            assert_not_cancelled()
            async with q.lock("cancelled at the end", max_hold=0.3, on_lost="warn") as lease:
                # It lets the loop run no more.
                eventually("the loss", lease.lost.is_set)

    asyncio.run(main())


def test_a_wait_for_another_leader_ends_with_its_timeout(nodes: Servers) -> None:
    async def main() -> None:
        async with nodes.aio_connect() as q:
            observer = q.election("without a leader").observe()
            await observer.changed(timeout=SOON)
            with pytest.raises(TimeoutError):
                await observer.changed(timeout=0.05)

    asyncio.run(main())


def test_a_release_that_the_body_has_begun_is_no_loss(nodes: Servers, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with nodes.aio_connect() as q:
            async with q.lock("released by the body") as lease:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(lease.release(), 1e-5)
            with pytest.raises(KeyError):
                async with q.lock("released by the body") as lease:
                    release = asyncio.create_task(lease.release())
                    await asyncio.sleep(0)
                    raise KeyError
            await release

    asyncio.run(main())
    assert "released by the body" not in caplog.text


def test_work_that_ends_within_its_notice_has_not_run_without_the_lock(
    nodes: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with nodes.aio_connect() as q:
            with pytest.raises(KeyError):
                async with q.lock("in time", ttl=6, max_hold=3, notice=2):
                    try:
                        await asyncio.sleep(SOON)
                    except asyncio.CancelledError:
                        raise KeyError from None

    asyncio.run(main())
    assert "`in time` was about to expire" in caplog.text
    assert "; the work ended before" in caplog.text


def test_a_notice_longer_than_the_ttl_does_not_cancel_a_lock_that_is_renewed(nodes: Servers) -> None:
    async def main() -> None:
        async with nodes.aio_connect() as q, q.lock("long notice", ttl=3, notice=30) as lease:
            await asyncio.sleep(3.5)
            lease.check()

    asyncio.run(main())


def test_a_body_that_suppresses_the_cancellation_raises_lost_at_its_end() -> None:
    async def main() -> None:
        with servers(3) as nodes:
            async with nodes.aio_connect() as q:
                went_on = False
                with pytest.raises(quorlock.Lost):
                    async with q.lock("suppressed", ttl=1):
                        lose(nodes)
                        try:
                            await asyncio.sleep(SOON)
                        except asyncio.CancelledError:
                            went_on = True
                        await asyncio.sleep(0.01)
                assert went_on
                assert_not_cancelled()

    asyncio.run(main())


def test_an_error_of_the_cancelled_body_is_not_hidden() -> None:
    async def main() -> None:
        with servers(3) as nodes:
            async with nodes.aio_connect() as q:
                with pytest.raises(ZeroDivisionError):
                    async with q.lock("failed", ttl=1):
                        lose(nodes)
                        try:
                            await asyncio.sleep(SOON)
                        except asyncio.CancelledError:
                            raise ZeroDivisionError from None

    asyncio.run(main())


def test_a_task_that_others_cancel_stays_cancelled(nodes: Servers) -> None:
    async def main() -> None:
        async with nodes.aio_connect() as q:
            inside = asyncio.Event()

            async def body() -> None:
                async with q.lock("cancelled"):
                    inside.set()
                    await asyncio.sleep(SOON)

            task = asyncio.create_task(body())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()

    asyncio.run(main())
    eventually_gone(nodes, "cancelled")


def test_a_timeout_around_the_lock_is_a_timeout(nodes: Servers) -> None:
    async def main() -> None:
        async with nodes.aio_connect() as q, nodes.aio_connect() as other:
            async with other.lock("timed"):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(q.lock("timed", wait=None).acquire(), 0.1)
                while await q.lock("timed").waiters():
                    await asyncio.sleep(0.01)
            async with q.lock("timed", wait=0):
                pass

    asyncio.run(main())


def test_a_thousand_cancelled_waits_leave_nothing_behind(nodes: Servers) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)

    async def main() -> None:
        async with nodes.aio_connect() as q, nodes.aio_connect() as other:
            lease = await other.lock("contended").acquire()

            async def wait(name: str) -> None:
                async with q.lock(name, wait=None):
                    await asyncio.sleep(dice.random() * 0.01)

            names = ["contended" if dice.random() < 0.5 else f"free {number}" for number in range(1000)]
            tasks = [asyncio.create_task(wait(name)) for name in names]
            for task in tasks:
                if dice.random() < 0.1:
                    await asyncio.sleep(dice.random() * 0.002)
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            while await q.lock("contended").waiters():
                await asyncio.sleep(0.01)
            await lease.release()
            async with q.lock("contended", wait=SOON):
                pass
            assert not aio._reactor()._futures, "nothing is waited for any more"

    asyncio.run(main())
    for name in ["contended", *(f"free {number}" for number in range(0, 1000, 10))]:
        eventually_gone(nodes, name)


def test_a_lease_that_arrives_after_the_cancellation_is_released(nodes: Servers) -> None:
    async def main() -> None:
        async with nodes.aio_connect() as q:
            for _ in range(50):
                task = asyncio.create_task(q.lock("late").acquire())
                await asyncio.sleep(0.001)
                if task.cancel():
                    with pytest.raises(asyncio.CancelledError):
                        await task
                else:
                    await (await task).release()
            gc.collect()
            async with q.lock("late", wait=SOON):
                pass

    asyncio.run(main())
    eventually_gone(nodes, "late")


def test_a_cancelled_release_releases(nodes: Servers) -> None:
    async def main() -> None:
        async with nodes.aio_connect() as q:
            lease = await q.lock("released").acquire()
            task = asyncio.create_task(lease.release())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await lease.lost.wait()
            async with q.lock("released", wait=SOON):
                pass

    asyncio.run(main())


@pytest.mark.parametrize("without", [False, True])
def test_a_closed_event_loop_hangs_nothing(nodes: Servers, without: bool) -> None:
    ended = run(
        nodes,
        """
q = aio_connect()
lease = None
async def hold():
    global lease
    lease = await q.lock("loop", ttl=5).acquire()
    # It is granted after its loop is closed.
    asyncio.get_running_loop().create_task(q.lock("loop", wait=None).acquire())
    await asyncio.sleep(0.05)
loop = asyncio.new_event_loop()
loop.run_until_complete(hold())
loop.close()
lease.check()
del lease
if EXIT_WITHOUT_A_LOOP:
    connect().lock("loop", wait=30).acquire()
    print("acquired again")
    sys.exit()
async def again():
    async with q.lock("loop", wait=30): print("acquired again")
asyncio.run(again())
""".replace("EXIT_WITHOUT_A_LOOP", str(without)),
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "acquired again\n"
    eventually_gone(nodes, "loop")


def test_a_context_may_be_left_by_another_task(nodes: Servers) -> None:
    async def main() -> None:
        async with nodes.aio_connect() as q:
            lock = q.lock("left elsewhere")
            lease = await asyncio.create_task(lock.__aenter__())
            lease.check()
            await asyncio.create_task(lock.__aexit__(None, None, None))
            assert lease.lost.is_set()

    asyncio.run(main())


def test_several_event_loops_use_one_coordinator(nodes: Servers) -> None:
    q = nodes.aio_connect()

    async def once() -> None:
        async with q.lock("loops"):
            pass

    for _ in range(3):
        asyncio.run(once())

    async def close() -> None:
        await q.close()

    asyncio.run(close())


def in_loop(work: Callable[[aio.Coordinator], Awaitable[Any]], nodes: Servers) -> None:
    async def main() -> None:
        async with nodes.aio_connect() as q:
            await work(q)

    asyncio.run(main())


def test_semaphores_elections_and_the_rest_work(nodes: Servers) -> None:
    async def work(q: aio.Coordinator) -> None:
        semaphore = q.semaphore("aio permits", 2, wait=0)
        async with semaphore as one, semaphore as two:
            assert {one.permit, two.permit} == {0, 1}
            with pytest.raises(quorlock.Full):
                await semaphore.acquire()
            assert len(await semaphore.inspect()) == 2
        election = q.election("aio election")
        observer = election.observe()
        assert (await anext(observer)).leader is None
        leadership = await election.campaign("me")
        seen = (await observer.changed()).leader
        assert isinstance(seen, quorlock.Leader)
        assert seen.value == "me"
        assert isinstance((await election.leader()).leader, quorlock.Leader)
        await leadership.release()
        async with q.lock_all(["aio a", "aio b"]):
            assert await q.lock("aio a").try_acquire() is None
        lock = q.lock("aio rest", wait=0)
        async with lock as lease:
            report = await lock.inspect()
            assert report.holder is not None
            assert report.holder.token == lease.token
            assert await lock.waiters() == []
            await lease.renew()
            await lease.downgrade()
            assert lease.shared
        await q.lock("aio rest").until_free()
        await (await lock.acquire()).retain(10, "note")
        assert await lock.try_acquire() is None
        async with await q.lock("aio lease").acquire() as lease:
            await q.lock("aio lease").revoke(lease.token)
            with pytest.raises(quorlock.Lost):
                await lease.release()
        assert [node.status for node in q.health()] == ["connected"] * 5

    in_loop(work, nodes)


def test_tasks_exclude_each_other(nodes: Servers) -> None:
    async def work(q: aio.Coordinator) -> None:
        running = 0

        async def one() -> None:
            nonlocal running
            lock = q.lock("aio counter", wait=None)
            for _ in range(10):
                async with lock:
                    running += 1
                    assert running == 1
                    await asyncio.sleep(0)
                    running -= 1

        await asyncio.gather(*(one() for _ in range(16)))

    in_loop(work, nodes)


def test_a_release_says_that_the_key_was_deleted_although_another_task_takes_the_lock_over(nodes: Servers) -> None:
    async def main() -> None:
        async with nodes.aio_connect() as q:
            lease = await q.lock("taken over").acquire()
            # The calls are carried out in their order, so it waits when the other is released.
            waiting = asyncio.ensure_future(q.lock("taken over").acquire())
            await asyncio.sleep(0)
            for index in range(5):
                nodes.command(index, "DEL", "taken over")
            with pytest.raises(quorlock.Lost) as raised:
                await lease.release()
            assert raised.value.reason == "quorum_lost"
            await (await waiting).release()

    asyncio.run(main())
