"""What bash offers behind `trireme`."""

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

    def test_files_elsewhere(self):
        self.assertEqual(self.offered("launch", "./tra"), [])


if __name__ == "__main__":
    main()
