"""Every layout of a split model on eight ranks and on two machines; parallel_test.py and machines_test.py run some."""

from machines import MachineCase, main
from parallel_test import LayoutsCase

import machines_test


class EveryLayout(LayoutsCase):
    pass


class EveryLayoutOnMachines(MachineCase, LayoutsCase):
    run_everywhere = machines_test.Machines.run_everywhere
    check_hierarchical = machines_test.Machines.check_hierarchical

    def test_eight(self):
        self.check_hierarchical(self.EIGHT)


if __name__ == "__main__":
    main()
