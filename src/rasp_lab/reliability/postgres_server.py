"""A PostgreSQL server on an empty folder, that can be stopped and started again, and a relay that can fail."""

import contextlib
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path


class NoPostgres(RuntimeError):
    """There is none to start; the message says why."""


class PostgresServer:
    """Started from Debian's package, or from the programs on the path."""

    def __init__(self, data: Path) -> None:
        programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        found = shutil.which("initdb")
        if not programs and not found:
            raise NoPostgres("install Debian's package postgresql")
        self._folder = (programs[-1] if programs else Path(str(found)).resolve()).parent
        self._data = data
        self._as_user = self._other_user()
        self.port = _free_port()
        self.url = f"postgresql://rasp@127.0.0.1:{self.port}/postgres"
        initdb = [*self._as_user, str(self._folder / "initdb"), "-D", str(data / "db"), "-U", "rasp", "-A", "trust"]
        command = [*initdb, "-E", "UTF8", "--no-sync"]
        made = subprocess.run(command, capture_output=True, text=True, check=False, cwd=data)
        if made.returncode:
            raise NoPostgres(f"initdb failed: {made.stderr.strip()[-200:]}")
        self.start()

    def start(self) -> None:
        """Until it takes connections."""
        command = [*self._as_user, str(self._folder / "postgres"), "-D", str(self._data / "db"), "-p", str(self.port)]
        with (self._data / "log").open("a") as log:  # -F: no waiting for disks
            options = ["-k", str(self._data), "-h", "127.0.0.1", "-F"]
            self._process = subprocess.Popen([*command, *options], cwd=self._data, stdout=log, stderr=log)
        ready = [str(self._folder / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        until = time.monotonic() + 60.0
        while subprocess.run(ready, check=False).returncode:
            if time.monotonic() > until or self._process.poll() is not None:
                raise NoPostgres((self._data / "log").read_text()[-500:])
            time.sleep(0.05)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGINT)  # fast: does not wait for clients to go
        self._process.wait(60)

    def _other_user(self) -> list[str]:
        """PostgreSQL refuses to run as root."""
        if os.getuid() != 0:
            return []
        try:
            user = pwd.getpwnam("postgres")
        except KeyError as reason:
            raise NoPostgres("running as root, and there is no user postgres to run it as") from reason
        os.chown(self._data, user.pw_uid, user.pw_gid)
        return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A server until the block ends; raises NoPostgres."""
    with tempfile.TemporaryDirectory(prefix="rasp-postgres-") as data:
        server = PostgresServer(Path(data))
        try:
            yield server
        finally:
            server.stop()


class Relay:
    """A way to a port of this machine that can be cut, or hang.

    is_cut       its connections end, and new ones do too
    is_hung      it takes connections and what is sent, and passes nothing on until it flows again
    is_closed    it takes no new connections
    """

    def __init__(self, port: int) -> None:
        self._target, self.is_cut, self.is_hung, self.is_closed = port, False, False, False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.is_cut = True
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if self.is_closed:
                    near.close()
                    continue
                threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        with near, socket.socket() as far:
            with contextlib.suppress(OSError):
                far.connect(("127.0.0.1", self._target))
                self._copy(near, far)
            for side in (near, far):  # closing is not enough: processes that were forked meanwhile have them, too
                with contextlib.suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)

    def _copy(self, near: socket.socket, far: socket.socket) -> None:
        while not self.is_cut:
            if self.is_hung:
                time.sleep(0.01)
                continue
            for side in select.select([near, far], [], [], 0.05)[0]:
                part = side.recv(1 << 16)
                if not part:
                    return
                (far if side is near else near).sendall(part)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
