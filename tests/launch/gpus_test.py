"""Which GPUs the workers get. This machine may have none: a stand-in for NVML shows eight, as the real one would."""

import os

from trireme_test import TRIREME, Case, main

FAKE_NVML = os.environ.get("FAKE_NVML", "build/tests/launch/nvml")  # folder of the stand-in libnvidia-ml.so.1

# A /dev with the driver's device file, in a mount namespace of the launcher.
WITH_DRIVER = """
    mkdir -p dev && mount -t tmpfs dev dev
    for name in null zero full random urandom tty; do touch dev/$name && mount --bind /dev/$name dev/$name; done
    ln -s /proc/self/fd dev/fd && touch dev/nvidiactl && mount --rbind dev /dev && exec "$@" """


def uuid(index):
    return f"GPU-{0xa0 + index:08x}-1111-2222-3333-444444444444"


class Gpus(Case):
    def launch_with_gpus(self, *args, visible=None):
        return self.run_with_gpus("launch", *args, visible=visible)

    def run_with_gpus(self, *words, visible=None):
        env = {"LD_LIBRARY_PATH": FAKE_NVML}
        if visible is not None:
            env["CUDA_VISIBLE_DEVICES"] = visible
        user = ["--user", "--map-root-user"] if os.geteuid() else []
        unset = ["env", "-u", "CUDA_VISIBLE_DEVICES"] if visible is None else []
        command = [*unset, "unshare", *user, "--mount", "sh", "-ec", WITH_DRIVER, "sh", TRIREME, *words]
        return self.start_command(command, env=env).wait()

    def devices(self, *options, visible=None):
        """(CUDA_VISIBLE_DEVICES, FLAGS_selected_gpus, LOCAL_RANK) of each worker."""
        result = self.launch_with_gpus(*options, self.script("worker", "env -0 >env.$RANK"), visible=visible)
        self.assert_ends(result, 0)
        self.assert_says(result, r"launch train in GPU mode", r"FLAGS_selected_gpus")
        count = len(list(self.folder.glob("env.*")))
        return [
            tuple(env.get(name) for name in ("CUDA_VISIBLE_DEVICES", "FLAGS_selected_gpus", "LOCAL_RANK"))
            for env in self.worker_environments(count)
        ]

    def test_doctor_names_driver_and_gpus(self):
        result = self.run_with_gpus("doctor")
        self.assert_says(result, r"^ok +NVIDIA driver 580\.42\.01$", r"^ok +GPU 7: Stand-in GPU, 79\.0 of 80\.0 GiB free$")

    def test_one_process_for_each_visible_gpu(self):
        everything = "0,1,2,3,4,5,6,7"
        self.assertEqual(self.devices(), [(everything, str(i), str(i)) for i in range(8)])

    def test_chosen_among_visible(self):
        self.assertEqual(self.devices("--gpus", "5,6", visible="4,5,6,7"), [("5,6", "0", "0"), ("5,6", "1", "1")])

    def test_first_n_visible(self):
        self.assertEqual(self.devices("-n", 2, visible="4,5,6,7"), [("4,5", "0", "0"), ("4,5", "1", "1")])

    def test_several_gpus_for_each_process(self):
        self.assertEqual(self.devices("--gpus", "0,1,2,3", "-n", 2), [("0,1,2,3", "0,1", "0"), ("0,1,2,3", "2,3", "1")])

    def test_uuids(self):
        visible = f"{uuid(3)},{uuid(4)}"
        self.assertEqual(self.devices(visible=visible), [(visible, "0", "0"), (visible, "1", "1")])
        self.assertEqual(self.devices("--gpus", "4", visible=visible)[0], (uuid(4), "0", "0"))

    def test_not_visible_names_the_visible(self):
        self.assert_usage(self.launch_with_gpus("--gpus", "9", "true"), r"--gpus 9", r"0,1,2,3,4,5,6,7")
        self.assert_usage(self.launch_with_gpus("--gpus", "4,3", "true", visible="4,5"), r"--gpus 3", r"\b4,5\b")

    def test_repeated_or_no_number(self):
        self.assert_usage(self.launch_with_gpus("--gpus", "1,1", "true"), r"--gpus", r"twice|repeated")
        self.assert_usage(self.launch_with_gpus("--gpus", "one", "true"), r"--gpus", r"one")

    def test_hidden_gpus_mean_cpu(self):
        for visible in ("", "-1"):
            result = self.launch_with_gpus("true", visible=visible)
            self.assert_ends(result, 0)
            self.assert_says(result, r"launch train in CPU mode")
            self.assert_usage(self.launch_with_gpus("--gpus", "0", "true", visible=visible), r"--gpus 0", r"no GPU")

    def test_dry_run_shows_the_mapping(self):
        result = self.launch_with_gpus("--gpus", "5,6", "--dry-run", "true", visible="4,5,6,7")
        self.assert_ends(result, 0)
        self.assert_says(result, r"GPU 5\b", r"GPU 6\b", r"CUDA_VISIBLE_DEVICES=5,6", r"FLAGS_selected_gpus=1")

    def test_more_processes_than_gpus_is_a_warning(self):
        result = self.launch_with_gpus("--gpus", "0", "-n", 2, "true")
        self.assert_ends(result, 0)
        self.assert_says(result, r"2 processes share 1 GPU")


class NoDriver(Case):
    def test_an_id_that_cannot_be_checked(self):
        self.assert_usage(
            self.launch("--gpus", "9", "true", env={"CUDA_VISIBLE_DEVICES": "4,5"}),
            r"--gpus 9",
            r"no GPU is visible|visible are",
        )


if __name__ == "__main__":
    main()
