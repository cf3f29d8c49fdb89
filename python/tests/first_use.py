"""The example of the README, as a new user runs it: no server, no Rust, nothing but the wheel."""

import os

os.environ.setdefault("QUORLOCK_SERVER", "builtin")

import quorlock
from quorlock.testing import servers

with servers(3) as nodes:
    with quorlock.connect(nodes.urls, restart_guard=False) as q:
        with q.lock("orders/42", ttl=30, wait=10) as lease:
            lease.check()
            print(f"orders/42 with fencing token {lease.fencing_token}, on {nodes.kind}")
