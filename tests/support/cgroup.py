"""Control groups that limit memory."""

from pathlib import Path


class MemoryCgroup:
    """A control group with a memory limit, of whichever version this machine has. Needs root."""

    def __init__(self, name, limit):
        version_1 = Path("/sys/fs/cgroup/memory")
        parent = version_1 if version_1.is_dir() else Path("/sys/fs/cgroup")
        self.path = parent / name
        if parent != version_1:
            self._enable_controller(parent)
        self.path.mkdir()
        limit_file, no_swap = ("memory.limit_in_bytes", None) if parent == version_1 else ("memory.max", "memory.swap.max")
        (self.path / limit_file).write_text(str(limit))
        if no_swap and (self.path / no_swap).exists():
            (self.path / no_swap).write_text("0")

    def _enable_controller(self, parent):
        control = parent / "cgroup.subtree_control"
        if "memory" not in control.read_text().split():
            control.write_text("+memory")

    def remove(self):
        self.path.rmdir()
