"""Faults at the n-th change that a command makes to the file system: a kill, a signal, a full disk.

Changes are counted where Python makes them: opening a file for writing, every write to it, fsync,
rename, link, unlink, mkdir, ... A kill in the middle of a write leaves half of it. safetensors
writes its file by itself; that counts as one change.
"""

import builtins
import errno
import functools
import io
import os
import signal

ROOM = {"write", "open", "fsync", "mkdir", "link", "symlink", "sendfile"}  # what needs space
OS_CALLS = ("fsync", "replace", "rename", "link", "symlink", "unlink", "remove", "mkdir", "rmdir")
OS_CALLS += ("truncate", "ftruncate", "sendfile")
SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM}


class Faults:
    """Counts the changes; from number `at` on (a kill: exactly there) they fail."""

    def __init__(self, kind="none", at=0):
        self.kind, self.at, self.count = kind, at, 0

    def before(self, what, name, half=None):
        """Called before every change; `half` does half of it."""
        self.count += 1
        if self.at == 0 or self.count < self.at or str(name) in (os.devnull, "1", "2"):
            return
        if self.kind in SIGNALS and self.count == self.at:
            if half is not None:
                half()
            self.send(SIGNALS[self.kind])
        named = [] if isinstance(name, int) else [name]  # the system names no open file
        if self.kind == "full" and what in ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *named)
        if self.kind == "read-only":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), *named)

    def install(self):
        """Count the changes of this process from now on; there is no way back."""
        self.send = functools.partial(os.kill, os.getpid())
        os.getpid = lambda: 7  # as in a container, where every command has the same number
        for name in OS_CALLS:
            setattr(os, name, self._counted(name, getattr(os, name)))
        os.open = self._counted_os_open(os.open)
        io.open = builtins.open = self._counted_open(io.open)
        self._count_safetensors()

    def _counted(self, name, real):
        def call(*args, **options):
            self.before(name, args[0])
            return real(*args, **options)

        return call

    def _counted_os_open(self, real):
        def call(path, flags, *args, **options):
            if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
                self.before("open", path)
            return real(path, flags, *args, **options)

        return call

    def _counted_open(self, real):
        faults = self

        class File(io.FileIO):
            def write(self, data):
                data, written = memoryview(data).cast("B"), []

                def half():
                    written.append(io.FileIO.write(self, data[: len(data) // 2]))

                faults.before("write", self.name, half)
                done = sum(written)  # a signal lets a command go on: the system writes the rest
                return done + super().write(data[done:])

            def truncate(self, size=None):
                faults.before("truncate", self.name)
                return super().truncate(size)

        def call(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, **more):
            if isinstance(file, int) or not set("wax+") & set(mode):
                return real(file, mode, buffering, encoding, errors, newline, **more)
            faults.before("open", file)
            raw = File(file, mode.replace("b", "").replace("t", ""), **more)
            if buffering == 0:
                return raw
            buffer = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw)
            return buffer if "b" in mode else io.TextIOWrapper(buffer, encoding, errors, newline)

        return call

    def _count_safetensors(self):
        import safetensors.torch
        from safetensors import SafetensorError

        real = safetensors.torch.serialize_file

        def call(tensors, filename, *args, **options):
            try:
                self.before("write", filename, lambda: open(filename, "wb").close())
            except OSError as error:
                raise SafetensorError(f"I/O error: {error.strerror}") from None
            return real(tensors, filename, *args, **options)

        safetensors.torch.serialize_file = call
