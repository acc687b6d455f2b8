"""A fleet on one machine: nodes of Ray that each have a disk of their own at the same path, and that can be lost as by a power cut."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import ray

RAY = Path(sys.executable).parent / "ray"
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    # A machine that is busy with other tests has lost no node.
    "RAY_health_check_period_ms": "2000",
    "RAY_health_check_failure_threshold": "10",
    "RAY_raylet_start_wait_time_s": "600",
    "RAY_worker_register_timeout_seconds": "600",
}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Fleet:
    """A head that has no files, and nodes. Their disks are directories below ``home``, mounted at ``home/disk`` in each node."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.disk = home / "disk"
        self.disk.mkdir(parents=True)
        # Unix sockets have short paths.
        self.session = Path("/tmp") / f"onesweep-ray-{os.getpid()}"
        self.address = f"127.0.0.1:{free_port()}"
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        self.begun: dict[str, tuple[list[str], list[str]]] = {}
        port = self.address.rsplit(":", 1)[1]
        self._start("head", ["--head", f"--port={port}", f"--temp-dir={self.session}", "--include-dashboard=false", "--num-cpus=1"], [])

    def _start(self, name: str, options: list[str], before: list[str]) -> None:
        self.begun[name] = options, before
        start = [str(RAY), "start", "--block", "--node-ip-address=127.0.0.1", "--disable-usage-stats", *options]
        if name != "head":
            start += [f"--address={self.address}", "--num-cpus=2"]
        log = open(self.home / f"{name}.log", "ab")
        self.nodes[name] = subprocess.Popen(
            [*before, *start, "--object-store-memory=100000000"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env={**os.environ, **QUIET},
        )
        log.close()

    def files(self, disk: str) -> Path:
        """The files of a disk, as they are seen from outside."""
        path = self.home / f"of-{disk}"
        path.mkdir(exist_ok=True)
        return path

    def start(self, name: str, disk: str, label: str | None) -> None:
        """Begins a node; whoever mounts the same disk has the same files."""
        # Ray's own files have names by numbers of processes, which each node counts from 1.
        own = self.home / f"ray-of-{name}"
        # Those of one that was killed aren't those of the next one.
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir(exist_ok=True)
        mounted = f'mount --bind "{own}" "{self.session}" && mount --bind "{self.files(disk)}" "{self.disk}" && exec "$@"'
        # All of its processes end with the first one of them.
        before = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", mounted, "sh"]
        self._start(name, [f"--labels=onesweep-files={label}"] if label else [], before)

    def has(self, alive: int) -> bool:
        """Whether so many nodes are there. On a busy machine Ray gives up after 30 seconds; then it begins anew."""
        for name, node in list(self.nodes.items()):
            if node.poll() is not None:
                assert name != "head", self.logs()
                self._start(name, *self.begun[name])
        return sum(node["Alive"] for node in ray.nodes()) == alive

    def kill(self, name: str) -> None:
        node = self.nodes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(node.pid, signal.SIGKILL)
        node.wait()

    def stop(self) -> None:
        for name in sorted(self.nodes, key=lambda name: name == "head"):
            node = self.nodes[name]
            if name == "head":
                node.terminate()
                try:
                    node.wait(60)
                except subprocess.TimeoutExpired:
                    pass
            self.kill(name)
        shutil.rmtree(self.session, ignore_errors=True)

    def logs(self) -> str:
        return "".join(f"{path.name}: {path.read_text()[-2000:]}" for path in sorted(self.home.glob("*.log")))


def until(what: str, is_so: Any, seconds: float = 900) -> Any:
    """Waits for what has to come."""
    import time

    for _ in range(int(seconds * 5)):
        try:
            if found := is_so():
                return found
        except ConnectionError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"it never came: {what}")
