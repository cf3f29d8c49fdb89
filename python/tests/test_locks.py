"""Locks, semaphores and elections, for threads."""

import contextlib
import math
import pathlib
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

import quorlock
from programs import SOON, eventually, eventually_gone, stored
from quorlock.testing import Servers, servers


def test_the_readme_s_example_works(nodes: Servers) -> None:
    with quorlock.connect(",".join(nodes.urls), restart_guard=False) as q:
        with q.lock("orders/42", ttl=30, wait=10) as lease:
            assert lease.fencing_token is not None
            assert 25 < lease.remaining <= 30
            lease.check()
            eventually("all nodes to store it", lambda: stored(nodes, "orders/42") == [0, 1, 2, 3, 4])
        assert lease.lost.is_set()
        assert lease.lost.reason == "released"


def test_a_lock_that_another_holds_is_refused_with_the_votes(q: quorlock.Coordinator, nodes: Servers) -> None:
    with nodes.connect(label="first") as other, other.lock("refused") as theirs:
        lock = q.lock("refused", wait=0)
        assert lock.try_acquire() is None
        with pytest.raises(quorlock.Held, match="`refused` is held by .*first") as refused, lock:
            pytest.fail("the body ran without the lock")
        error = refused.value
        assert error.resource == "refused"
        assert error.report is not None
        assert [vote.outcome for vote in error.report.votes].count("held") >= 3
        assert error.holder is not None
        assert error.holder.token == theirs.token
        assert error.holder.fencing_token == theirs.fencing_token
        assert "first" in (error.holder.context or "")
        assert error.remaining == error.holder.remaining > 0


def test_a_node_that_never_forgets_by_the_operators_word_votes_right_after_its_start() -> None:
    with servers(3) as nodes:
        with (
            quorlock.connect(nodes.urls) as guarded,
            pytest.raises(quorlock.AcquireError, match="restarted or first used too recently"),
        ):
            guarded.lock("fresh", wait=0).acquire()
        with quorlock.connect([f"{url}?forgets=never" for url in nodes.urls]) as trusting:
            with trusting.lock("fresh", wait=0) as lease:
                lease.check()
            assert [finding.check for finding in trusting.doctor()].count("never-forgets") == 3


def test_a_key_without_an_expiry_is_held_for_ever(q: quorlock.Coordinator, nodes: Servers) -> None:
    for index in range(5):
        nodes.command(index, "SET", "endless", "of another program")
    holder = q.lock("endless").inspect().holder
    assert holder is not None
    assert holder.remaining == math.inf
    for index in range(5):
        nodes.command(index, "DEL", "endless")


def test_a_waiter_gets_the_lock_when_it_is_released(q: quorlock.Coordinator, nodes: Servers) -> None:
    with nodes.connect() as other:
        held = other.lock("waited").acquire()
        got: list[quorlock.Lease] = []
        waiter = threading.Thread(target=lambda: got.append(q.lock("waited", wait=None).acquire()))
        waiter.start()
        eventually("a waiter in the queue", lambda: q.lock("waited").waiters())
        held.release()
        waiter.join(SOON)
        assert got[0].fencing_token is not None
        assert held.fencing_token is not None
        assert got[0].fencing_token > held.fencing_token
        got[0].release()


def test_that_no_client_waits_is_not_said_without_an_answer() -> None:
    with servers(3) as nodes, nodes.connect() as q:
        waiters = q.lock("waited").waiters()
        assert waiters == []
        assert not waiters.has_more
        for node in range(3):
            nodes.kill(node)
        unknown = q.lock("waited").waiters()
        assert unknown == []
        assert unknown.has_more


def test_without_a_quorum_the_body_never_runs() -> None:
    with servers(3) as nodes, nodes.connect() as q:
        nodes.kill(0)
        nodes.kill(1)
        with pytest.raises(quorlock.NoQuorum) as refused, q.lock("outage", wait=0):
            pytest.fail("the body ran without the lock")
        assert refused.value.report is not None
        assert [vote.outcome for vote in refused.value.report.votes].count("failed") >= 2
        with pytest.raises(quorlock.NoQuorum):
            q.lock("outage", wait=0).try_acquire()


def test_a_loss_is_raised_at_the_end_of_the_body_and_told_at_once() -> None:
    with servers(3) as nodes, nodes.connect() as q:
        seen: list[str] = []
        with pytest.raises(quorlock.Lost) as lost, q.lock("lost", ttl=1) as lease:
            lease.on_lost(seen.append)
            assert not lease.lost.wait(0.01)
            for index in range(3):
                nodes.kill(index)
            assert lease.lost.wait(timedelta(seconds=SOON))
            assert lease.remaining == 0
            with pytest.raises(quorlock.Lost):
                lease.check()
        assert lost.value.reason == "expired"
        assert lost.value.resource == "lost"
        assert eventually("the callback", lambda: seen) == ["expired"]


def test_a_loss_is_only_logged_if_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    with servers(1) as nodes, nodes.connect() as q:
        with q.lock("warned", ttl=1, on_lost="warn") as lease:
            nodes.kill(0)
            assert lease.lost.wait(SOON)
        assert "without the lock" in caplog.text


def test_the_error_of_the_body_wins_and_the_lock_is_released(q: quorlock.Coordinator, nodes: Servers) -> None:
    with pytest.raises(ZeroDivisionError), q.lock("failed"):
        raise ZeroDivisionError
    eventually_gone(nodes, "failed")


def test_a_lease_that_is_dropped_is_released(q: quorlock.Coordinator, nodes: Servers) -> None:
    lease: quorlock.Lease | None = q.lock("dropped").acquire()
    assert lease
    assert stored(nodes, "dropped")
    lease = None
    eventually_gone(nodes, "dropped")


def test_an_early_release_is_no_loss(q: quorlock.Coordinator) -> None:
    with q.lock("early") as lease:
        lease.release()
        with pytest.raises(quorlock.Lost) as lost:
            lease.release()
        assert lost.value.reason == "released"


def test_readers_share_and_a_writer_waits(q: quorlock.Coordinator) -> None:
    shared = q.lock("shared", shared=True, wait=0)
    with shared as one, shared as two:
        assert one.shared
        assert two.shared
        assert q.lock("shared", wait=0).try_acquire() is None
    with q.lock("shared", wait=5) as writer:
        assert not writer.shared
        writer.downgrade()
        assert writer.shared
        with shared:
            pass


def test_several_names_are_locked_together(q: quorlock.Coordinator) -> None:
    with q.lock_all(["a", "b"]):
        assert q.lock("a", wait=0).try_acquire() is None
        assert q.lock("b", wait=0).try_acquire() is None
    with q.lock("b"), pytest.raises(quorlock.Held), q.lock_all(["a", "b"], wait=0):
        pytest.fail("the body ran without the locks")


def test_a_semaphore_has_as_many_holders_as_permits(q: quorlock.Coordinator) -> None:
    semaphore = q.semaphore("exports", 2, wait=0)
    with semaphore as one, semaphore as two:
        assert {one.permit, two.permit} == {0, 1}
        assert semaphore.try_acquire() is None
        with pytest.raises(quorlock.Full) as full, semaphore:
            pytest.fail("the body ran without a permit")
        assert [holder is not None for holder in full.value.holders] == [True, True]
        assert full.value.holder == full.value.holders[0]
        assert full.value.remaining == min(holder.remaining for holder in full.value.holders if holder) > 0
        assert len(semaphore.inspect()) == 2
        with pytest.raises(quorlock.OtherPermits):
            q.semaphore("exports", 3, wait=0).acquire()


def test_an_election_has_one_leader_whom_observers_see(q: quorlock.Coordinator) -> None:
    election = q.election("scheduler")
    assert election.leader() == quorlock.Observed(leader=None)
    observer = election.observe()
    assert observer.changed(SOON).leader is None
    leadership = election.campaign("http://10.0.0.7:8080")
    seen = observer.changed(SOON).leader
    assert isinstance(seen, quorlock.Leader)
    assert seen.value == leadership.value == "http://10.0.0.7:8080"
    with pytest.raises(TimeoutError):
        observer.changed(0.01)
    with pytest.raises(quorlock.Held):
        q.election("scheduler", wait=0).campaign("other")
    leadership.release()
    assert observer.changed(SOON).leader is None


def test_a_timeout_of_an_observer_counts_while_another_call_of_it_waits(q: quorlock.Coordinator) -> None:
    observer = q.election("watched twice").observe()
    observer.changed(SOON)
    with ThreadPoolExecutor() as pool:
        waits = pool.submit(observer.changed, SOON)
        for _ in range(5):
            with pytest.raises(TimeoutError):
                observer.changed(0.05)
        assert not waits.done(), "they waited for as long as the other call"
        with q.election("watched twice").campaign("the first"):
            assert waits.result().leader is not None


def test_manual_renewal_starts_a_new_ttl(q: quorlock.Coordinator) -> None:
    with q.lock("manual", ttl=30, renew=False) as lease:
        eventually("some time to pass", lambda: lease.remaining < 29.5)
        lease.renew()
        assert lease.remaining > 29.5


def test_max_hold_ends_a_lease_that_is_renewed(q: quorlock.Coordinator) -> None:
    with pytest.raises(quorlock.Lost) as lost, q.lock("held too long", ttl=2, max_hold=0.5) as lease:
        assert lease.lost.wait(SOON)
    assert lost.value.reason == "max_hold"


def test_a_retained_lock_stays_taken_without_a_holder(q: quorlock.Coordinator, nodes: Servers) -> None:
    q.lock("retained").acquire().retain(4, "ran at noon")
    assert q.lock("retained", wait=0).try_acquire() is None
    holder = q.lock("retained").inspect().holder
    assert holder is not None
    assert "ran at noon" in str(holder)
    q.lock("retained", wait=SOON).until_free()


def test_a_lock_can_be_taken_away(q: quorlock.Coordinator) -> None:
    with pytest.raises(quorlock.Lost) as lost, q.lock("revoked", ttl=1) as lease:
        q.lock("revoked").revoke(lease.token)
        assert lease.lost.wait(SOON)
    assert lost.value.reason in {"quorum_lost", "expired"}


def test_settings_that_cannot_work_are_refused_with_a_cure(q: quorlock.Coordinator) -> None:
    for settings, cure in [
        ({"ttl": 3600}, "max_ttl"),
        ({"ttl": -1}, "ttl=-1"),
        ({"wait": -1}, "wait=None waits for ever"),
        ({"renew": 0.0}, "renew=False"),
        ({"renew": 50}, "renew"),
    ]:
        with pytest.raises(ValueError, match=cure):
            q.lock("refused", **settings)  # type: ignore[arg-type]
    with pytest.raises(quorlock.ConfigError):
        q.lock("")
    with pytest.raises(quorlock.ConfigError, match="QUORLOCK_NODES"):
        quorlock.connect()
    with pytest.raises(quorlock.ConfigError, match="unknown scheme.*postgres://"):
        quorlock.connect("ftp://a")
    with pytest.raises(quorlock.ConfigError, match="tls_key"):
        quorlock.connect("rediss://a", tls_cert="cert.pem")


def test_a_closed_coordinator_refuses(nodes: Servers) -> None:
    q = nodes.connect()
    lease = q.lock("closed").acquire()
    q.close()
    assert lease.lost.reason == "closed"
    with pytest.raises(quorlock.Closed):
        q.lock("closed").acquire()
    eventually_gone(nodes, "closed")


def test_threads_exclude_each_other(nodes: Servers) -> None:
    running: list[int] = []
    with nodes.connect() as one, nodes.connect() as two:

        def work(q: quorlock.Coordinator) -> None:
            for _ in range(20):
                with q.lock("counter", wait=None):
                    running.append(1)
                    assert len(running) == 1
                    running.pop()

        failed: list[BaseException] = []

        def guarded(q: quorlock.Coordinator) -> None:
            try:
                work(q)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=guarded, args=(q,)) for q in [one, two] * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SOON)
            assert not thread.is_alive()
        assert not failed


def test_a_decorated_function_runs_under_the_lock(q: quorlock.Coordinator) -> None:
    @q.lock("decorated", wait=0)
    def work(number: int) -> int:
        assert q.lock("decorated", wait=0).try_acquire() is None
        return number + 1

    assert work(41) == 42
    with q.lock("decorated"), pytest.raises(quorlock.Held):
        work(1)


def test_threads_may_be_in_the_same_context_at_the_same_time(q: quorlock.Coordinator) -> None:
    semaphore = q.semaphore("threads", 2)
    inside = threading.Barrier(2, timeout=SOON)
    held: list[quorlock.Lease] = []

    def work(stay: threading.Event, leave: threading.Event) -> None:
        with semaphore as permit:
            held.append(permit)
            inside.wait()
            assert stay.wait(SOON)
            permit.check()
        assert permit.lost.is_set()
        leave.set()

    first, second, last = threading.Event(), threading.Event(), threading.Event()
    first.set()
    threads = [threading.Thread(target=work, args=(first, second)), threading.Thread(target=work, args=(second, last))]
    for thread in threads:
        thread.start()
    assert last.wait(SOON), "each thread released its own permit"
    for thread in threads:
        thread.join(SOON)


def test_health_names_the_node_that_is_down() -> None:
    with servers(3) as nodes, nodes.connect() as q:
        with q.lock("health"):
            nodes.kill(1)
            states = eventually(
                "one node to be down",
                lambda: [node.status for node in q.health()] == ["connected", "unreachable", "connected"],
            )
            assert states


def test_all_kinds_of_node_are_known() -> None:
    for nodes in [
        ["valkey://a", "redis+sentinel://b,c/service", "redis+cluster://d,e"],
        ["postgres://a/locks", "mysql://b/locks", "rediss://c"],
        "redis://a,redis+sentinel://b,c/service,postgres://d/locks",
    ]:
        # It contacts no one.
        assert len(quorlock.connect(nodes).health()) == 3
    # One cluster, and the only node.
    assert len(quorlock.connect("etcd://a,b,c").health()) == 1
    assert len(quorlock.connect("zookeeper://a,b,c/locks").health()) == 1


def test_a_database_on_one_host_is_a_node(tmp_path: object) -> None:
    with quorlock.connect(f"sqlite://{tmp_path}/locks.db", restart_guard=False) as q:
        with q.lock("file") as lease:
            assert lease.fencing_token is not None
            # Not every store has numbers of its own.
            assert lease.store_revision is None
            assert q.lock("file", wait=0).try_acquire() is None


def test_a_program_is_a_node() -> None:
    program = pathlib.Path(__file__).parents[2] / "crates/quorlock-exec/examples/node.py"
    with quorlock.connect(f"exec:{sys.executable}?arg={program}", restart_guard=False) as q:
        with q.lock("program"):
            assert q.lock("program", wait=0).try_acquire() is None
        assert q.lock("program", wait=0).try_acquire() is not None


def test_a_password_that_is_no_unicode_is_in_no_exception() -> None:
    """Python's own exception would hold it: `UnicodeEncodeError.object`."""
    wrong: list[tuple[str | list[str], str | None]] = [
        ("redis://a", "s3cret\udcff"),
        ("redis://:s3cret\udcff@a", None),
        (["redis://a", "redis://:s3cret\udcff@b"], None),
    ]
    for addresses, password in wrong:
        with pytest.raises(quorlock.ConfigError, match="is not valid Unicode") as raised:
            quorlock.connect(addresses, password=password)
        shown = "".join(traceback.format_exception(raised.value)) + repr(raised.value.args)
        assert "s3cret" not in shown
        assert raised.value.__context__ is None
        assert raised.value.__cause__ is None


NASTY = "job\nFORGED\x1b[2J\x9b1m\x7f\u202e\u200b\u2028\U000e0041end"


def test_a_name_with_hidden_characters_is_shown_escaped_and_stays_itself(
    q: quorlock.Coordinator, nodes: Servers
) -> None:
    shown = r"job\nFORGED\u{1b}[2J\u{9b}1m\u{7f}\u{202e}\u{200b}\u{2028}\u{e0041}end"
    with nodes.connect(label=NASTY) as other, other.lock(NASTY) as theirs:
        assert theirs.resource == NASTY
        with pytest.raises(quorlock.Held) as refused:
            q.lock(NASTY, wait=0).acquire()
        error = refused.value
        assert error.resource == NASTY
        assert error.holder is not None
        assert NASTY in (error.holder.context or "")
        assert f"`{shown}` is held by" in str(error)
        assert shown in error.holder.text
        for text in [str(error), repr(error), repr(theirs), repr(error.holder), str(error.report), error.holder.text]:
            assert text.isprintable(), ascii(text)
    with pytest.raises(quorlock.Lost) as lost:
        theirs.check()
    assert str(lost.value).isprintable(), ascii(str(lost.value))


def test_a_release_says_that_the_key_was_deleted_or_is_another_s(q: quorlock.Coordinator, nodes: Servers) -> None:
    for other in [False, True]:
        for ends in ["release", "with"]:
            name = f"deleted {other} {ends}"
            with pytest.raises(quorlock.Lost) as raised, contextlib.ExitStack() as stack:
                lease = q.lock(name).acquire()
                if ends == "with":
                    stack.enter_context(lease)
                for index in range(5):
                    nodes.command(index, "DEL", name)
                    if other:
                        nodes.command(index, "SET", name, "another client", "PX", "20000")
                if ends == "release":
                    lease.release()
            assert raised.value.reason == "quorum_lost"
            assert (nodes.command(0, "EXISTS", name) != "0") is other
    with q.lock("kept by the others") as lease:
        for index in range(2):
            nodes.command(index, "DEL", "kept by the others")
