"""What bash offers behind `trireme`."""

import re
from pathlib import Path

from trireme_test import ROOT, TRIREME, Case, main


class Completion(Case):
    def offered(self, *words):
        script = (f". {ROOT}/cli/completion/trireme.bash; COMP_WORDS=(trireme {' '.join(words)} ''); "
                  f"COMP_CWORD={len(words)}; _trireme; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
        env = {"PATH": f"{Path(TRIREME).parent}:/usr/bin:/bin"}
        result = self.start_command(["bash", "-c", script], env=env).wait()
        self.assert_ends(result, 0)
        self.assertEqual(result.err, "", result)
        return result.out.split()

    def test_commands(self):
        self.assertEqual(self.offered("la"), ["launch"])
        self.assertIn("doctor", self.offered("''"))
        self.assertIn("environment", self.offered("help", "env"))

    def test_options_of_a_command(self):
        self.assertEqual(self.offered("launch", "--nn"), ["--nnodes"])
        self.assertIn("--max_restart", self.offered("launch", "-n", "2", "--ma"))

    def test_every_command_offers_options(self):
        """`help` offers commands instead."""
        overview = self.start_command([TRIREME, "help"]).wait().out
        apart = ("pack", "train", "eval", "export", "infer", "serve")  # not in a build without libtorch
        commands = [name for name in re.findall(r"^  ([a-z]+)  ", overview, re.M) if name != "help"
                    and (name not in apart or Path(TRIREME).with_name(f"trireme-{name}").exists())]
        self.assertIn("doctor", commands)
        for command in commands:
            self.assertIn("--help", self.offered(command, "--"), command)

    def test_options_of_doctor(self):
        self.assertIn("--job", self.offered("doctor", "--jo"))
        self.assertLessEqual({"--ips", "--ssh", "--nnodes"}, set(self.offered("doctor", "--")))

    def test_the_job_of_doctor_is_an_option_like_others(self):
        for words in (["--job", "nowhere"], ["--job=nowhere"]):
            self.assert_usage(self.start_command([TRIREME, "doctor", *words]).wait(), "nowhere: not the log folder")
        self.assert_usage(self.start_command([TRIREME, "doctor", "--job", "a", "--ips", "b"]).wait(), "--ips")
        self.assert_usage(self.start_command([TRIREME, "doctor", "--job"]).wait(), "log folder")

    def test_files_elsewhere(self):
        self.assertEqual(self.offered("launch", "./tra"), [])


if __name__ == "__main__":
    main()
