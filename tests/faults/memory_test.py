"""A rank that the kernel kills because memory ran out is told apart from one killed by hand."""

import os

from cgroup import MemoryCgroup
from trireme_test import FOREVER, TRIREME, Case, main

LIMIT = 64 << 20


class OutOfMemory(Case):
    def memory_cgroup(self):
        try:
            return MemoryCgroup(f"trireme-test-{os.getpid()}", LIMIT)
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
