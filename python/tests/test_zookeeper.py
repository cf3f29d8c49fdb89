"""An ensemble of ZooKeeper as the node; skipped where there is none."""

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

CACHED = pathlib.Path(__file__).parents[2] / ".tools" / "zookeeper" / "lib"


@pytest.fixture
def url() -> Iterator[str]:
    """Starts one server on a port of the loopback interface."""
    jars = CACHED if CACHED.exists() else pathlib.Path(os.environ.get("QUORLOCK_ZOOKEEPER", "/nowhere"))
    java = shutil.which("java")
    if java is None or not jars.exists():
        pytest.skip("ZooKeeper is not installed")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "zoo.cfg"
        settings = f"tickTime=200\ndataDir={folder}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        config.write_text(settings + "admin.enableServer=false\n")
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = [java, "-Xmx128m", "-cp", f"{jars}/*", main, str(config)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as member:
            try:
                yield f"zookeeper://127.0.0.1:{port}/locks?session=3s"
            finally:
                member.kill()


def test_an_ensemble_of_zookeeper_is_a_node(url: str) -> None:
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
        with pytest.raises(quorlock.ConfigError, match="shared locks"):
            q.lock("jobs/a", shared=True).acquire()
