"""Tokens between machines: spec 5, Security."""

from machines import MachineCase, main

TOKEN, OTHER = "5a" * 32, "c3" * 32
UNAUTHENTICATED = r"not authenticated"


class Trust(MachineCase):
    def token_file(self, text, mode=0o600, name="token"):
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        return {"TRIREME_TOKEN_FILE": str(path)}

    def count(self, result, pattern):
        return sum(pattern in line for line in result.text.splitlines())

    def test_without_token_one_warning(self):
        for result in self.launch_everywhere("--ips", self.ips, "true"):
            self.assert_ends(result, 0)
            self.assertEqual(self.count(result, UNAUTHENTICATED), 1, result)

    def test_same_token(self):
        for result in self.launch_everywhere("--ips", self.ips, "true", env=self.token_file(TOKEN + "\n")):
            self.assert_ends(result, 0)
            self.assert_silent_on(result, UNAUTHENTICATED)

    def test_default_place(self):
        home = self.folder / ".config/trireme"
        home.mkdir(parents=True)
        (home / "token").write_text(TOKEN)
        (home / "token").chmod(0o600)
        for result in self.launch_everywhere("--ips", self.ips, "true"):
            self.assert_ends(result, 0)
            self.assert_silent_on(result, UNAUTHENTICATED)

    def test_token_does_not_leak(self):
        dump = "env >env; cat /proc/$PPID/cmdline >parent; cat /proc/[0-9]*/cmdline >ps 2>/dev/null; true"
        for result in self.launch_everywhere("--ips", self.ips, "sh", "-c", dump, env=self.token_file(TOKEN)):
            self.assert_ends(result, 0)
        for name, content in {"env": "PADDLE_TRAINER_ID=", "parent": "trireme", "ps": "trireme"}.items():
            text = self.read_on(self.alpha, name)
            self.assertIn(content, text)
            self.assertNotIn(TOKEN, text)

    def test_file_that_others_can_read(self):
        result = self.start_on(self.alpha, "--ips", self.ips, "true", env=self.token_file(TOKEN, mode=0o644)).wait()
        self.assert_usage(result, r"token", r"600")
        self.assert_within(2, result)

    def test_file_that_is_missing_or_no_token(self):
        result = self.start_on(
            self.alpha, "--ips", self.ips, "true", env={"TRIREME_TOKEN_FILE": str(self.folder / "nowhere")}
        ).wait()
        self.assert_usage(result, r"nowhere")
        result = self.start_on(self.alpha, "--ips", self.ips, "true", env=self.token_file("too short")).wait()
        self.assert_usage(result, r"64 hexadecimal")

    def test_different_tokens(self):
        self.refused(self.token_file(TOKEN, name="one"), self.token_file(OTHER, name="two"))

    def test_token_on_one_side_only(self):
        self.refused(self.token_file(TOKEN), {})

    def refused(self, on_alpha, on_beta):
        alpha = self.start_on(self.alpha, "--ips", self.ips, "--join_timeout", 3, "true", env=on_alpha)
        beta = self.start_on(self.beta, "--ips", self.ips, "--join_timeout", 3, "true", env=on_beta)
        for result in (alpha.wait(), beta.wait()):
            self.assertNotEqual(result.code, 0, result)
            self.assert_within(6, result)
        self.assert_says(beta.wait(), r"token")
        self.assert_says(alpha.wait(), r"token")


if __name__ == "__main__":
    main()
