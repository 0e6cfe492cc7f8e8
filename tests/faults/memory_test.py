"""A rank that the kernel kills because memory ran out is told apart from one killed by hand."""

import os
from pathlib import Path

from trireme_test import FOREVER, TRIREME, Case, main

LIMIT = 64 << 20


class MemoryCgroup:
    """A control group with a memory limit, of whichever version this machine has. Needs root."""

    def __init__(self, name):
        version_1 = Path("/sys/fs/cgroup/memory")
        parent = version_1 if version_1.is_dir() else Path("/sys/fs/cgroup")
        self.path = parent / name
        if parent != version_1:
            self._enable_controller(parent)
        self.path.mkdir()
        limit, no_swap = ("memory.limit_in_bytes", None) if parent == version_1 else ("memory.max", "memory.swap.max")
        (self.path / limit).write_text(str(LIMIT))
        if no_swap and (self.path / no_swap).exists():
            (self.path / no_swap).write_text("0")

    def _enable_controller(self, parent):
        control = parent / "cgroup.subtree_control"
        if "memory" not in control.read_text().split():
            control.write_text("+memory")

    def remove(self):
        self.path.rmdir()


class OutOfMemory(Case):
    def memory_cgroup(self):
        try:
            return MemoryCgroup(f"trireme-test-{os.getpid()}")
        except OSError as error:
            self.fail(f"cannot limit memory: {error}; this test needs root")

    def test_kernel_kill_is_recognised(self):
        group = self.memory_cgroup()
        self.addCleanup(group.remove)  # runs after the check that no process is left
        self.addCleanup(self._nothing_left)
        eater = self.script("worker", f"echo $$ >pid.$RANK; if [ $RANK = 0 ]; then {FOREVER}; fi; exec tail /dev/zero")
        job = self.start_command(
            ["sh", "-c", f'echo $$ >{group.path}/cgroup.procs && exec "$@"', "sh", TRIREME, "launch", "-n", "2", eater]
        )
        result = job.wait(30)
        self.assert_ends(result, 137)
        self.assert_says(result, r"rank 1\b[^\n]*kernel[^\n]*memory")
        self.assertIn("memory", str(self.result_json()).lower())


if __name__ == "__main__":
    main()
