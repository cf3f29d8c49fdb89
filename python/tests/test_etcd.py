"""A cluster of etcd as the node; skipped where there is none."""

import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator

import pytest

import quorlock

CACHED = pathlib.Path(__file__).parents[2] / ".tools" / "etcd" / "etcd"


def program() -> str | None:
    """Returns the path of etcd: the cached one, that of `QUORLOCK_ETCD`, or one on the `PATH`."""
    named = os.environ.get("QUORLOCK_ETCD")
    if CACHED.exists():
        return str(CACHED)
    return str(pathlib.Path(named) / "etcd") if named else shutil.which("etcd")


@pytest.fixture
def url() -> Iterator[str]:
    """Starts one member on ports of the loopback interface."""
    etcd = program()
    if etcd is None:
        pytest.skip("etcd is not installed")
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    client, peer = (f"127.0.0.1:{server.getsockname()[1]}" for server in sockets)
    for server in sockets:
        server.close()
    with tempfile.TemporaryDirectory() as folder:
        options = [
            "--name", "a", "--data-dir", folder, "--log-level", "error",
            "--listen-client-urls", f"http://{client}", "--advertise-client-urls", f"http://{client}",
            "--listen-peer-urls", f"http://{peer}", "--initial-advertise-peer-urls", f"http://{peer}",
            "--initial-cluster", f"a=http://{peer}",
        ]  # fmt: skip
        with subprocess.Popen([etcd, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as member:
            try:
                yield f"etcd://{client}"
            finally:
                member.kill()


def test_a_cluster_of_etcd_is_a_node(url: str) -> None:
    with quorlock.connect(url, restart_guard=False) as q:
        end = time.monotonic() + 60
        while q.health()[0].status != "connected" and time.monotonic() < end:
            try:
                q.lock("warm").try_acquire()
            except quorlock.NoQuorum:
                time.sleep(0.05)
        with q.lock("jobs/a") as lease:
            assert lease.fencing_token is not None
            assert lease.store_revision is not None
            assert q.lock("jobs/a", wait=0).try_acquire() is None
        with q.lock("jobs/b", ttl=5, renew=False) as lease:
            # Its key moves to a lease of etcd with this TTL, which the next heartbeat keeps.
            lease.extend(20)
            assert 15 < lease.remaining <= 20
            holder = q.lock("jobs/b").inspect().holder
            assert holder is not None
            assert holder.remaining > 15
            lease.renew()
            assert 10 < lease.remaining <= 20
        with pytest.raises(quorlock.ConfigError, match="shared locks"):
            q.lock("jobs/a", shared=True).acquire()
