"""What bare_machine.py, which is run by hand, makes of README and of the Dockerfile."""

import bare_machine
import pages
from trireme_test import ROOT, Case, main

SAMPLE = """\
# a comment
FROM debian:12-slim
ARG KIND=cpu
ENV LIBTORCH=$KIND
COPY setup /there/setup
RUN /there/setup/setup.sh \\
  # between continued lines
  build
ENV NAME=two words

RUN make install
ENTRYPOINT ["program"]
CMD ["--help", "two words"]
"""


class Dockerfile(Case):
    def test_instructions_become_commands(self):
        first, second, third, last = bare_machine.docker_steps(SAMPLE)
        self.assertEqual(first, "mkdir -p /there/setup && cp -r /context/setup/. /there/setup")
        self.assertEqual(second.split(), "export KIND=cpu; export LIBTORCH=cpu; /there/setup/setup.sh build".split())
        self.assertEqual(third, "export KIND=cpu; export LIBTORCH=cpu; export NAME='two words'; make install")
        self.assertEqual(last, "program --help 'two words'")

    def test_an_unknown_instruction_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "HEALTHCHECK is not known"):
            bare_machine.docker_steps("FROM x\nHEALTHCHECK NONE\n")

    def test_ours_sets_up_and_installs(self):
        steps = bare_machine.docker_steps(pages.page("Dockerfile"))
        self.assertEqual(len(steps), 5, steps)
        self.assertRegex(steps[1], "TRIREME_LIBTORCH=cpu; /trireme/setup/setup.sh build$")
        self.assertRegex(steps[3], "make -C /trireme install PREFIX=/usr/local$")
        self.assertEqual(steps[4], "trireme --help")

    def test_what_it_copies_is_there(self):
        """And the build argument for CUDA is one that the set-up knows."""
        text = pages.page("Dockerfile")
        for name, rest in bare_machine.instructions(text):
            if name == "COPY":
                self.assertTrue((ROOT / rest.split()[0]).exists(), rest)
        self.assertIn("--build-arg TRIREME_LIBTORCH=cuda", text)
        where = self.start_command([ROOT / "setup/setup.sh", "where", "libtorch"], env={"TRIREME_LIBTORCH": "cuda"}).wait()
        self.assert_ends(where, 0)
        self.assertRegex(where.out, "/cuda-")


class Readme(Case):
    def test_it_names_what_a_bare_machine_needs(self):
        self.assertEqual(set(bare_machine.packages_before().split()), {"make", "git"})

    def test_the_pages_show_the_commands_of_the_dockerfile(self):
        """docs/install.md and the first lines of the Dockerfile say the same of the GPUs, the network and the memory."""
        page, file = pages.page("docs/install.md"), pages.page("Dockerfile")
        for words in ("docker build -t trireme", "--build-arg TRIREME_LIBTORCH=cuda", "--net=host", "--shm-size=2g",
                      '-v "$PWD:/app"', "--gpus all"):
            self.assertIn(words, page)
            self.assertIn(words, file)


if __name__ == "__main__":
    main()
