"""A Debian 12 with nothing on it but apt, certificates and Python's venv: what a new machine has.

    debian = BareDebian(folder)
    debian.take(Path("trireme.whl"), "/root")
    print(debian.run("python3", "-m", "venv", "/root/venv"))

It is a folder of its own files; the network, and nothing else, is shared with this machine. Needs root, or a kernel that
lets users make namespaces (machines.main).
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

from trireme_test import ROOT

PATIENCE = 300  # seconds, for apt and pip
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENTER = """
root=$1; shift
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/tmp"
exec chroot "$root" "$@"
"""


class BareDebian:
    def __init__(self, test):
        archive = subprocess.run([ROOT / "setup/setup.sh", "where", "debian"], capture_output=True, text=True,
                                 check=True).stdout.strip()
        self.root = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="trireme-debian."))  # 1 GB with libtorch
        test.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        subprocess.run(["tar", "-C", self.root, "--exclude=./dev/*", "-xf", f"{archive}/root.tar"], check=True)
        for name in ("resolv.conf", "hosts", "ssl/certs/ca-certificates.crt"):
            shutil.copy(f"/etc/{name}", self.root / "etc" / name)

    def take(self, file, folder):
        """Copies a file from outside to a folder in here."""
        target = self.root / folder.lstrip("/")
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)

    def run(self, *words, code=0, patience=PATIENCE):
        """Runs a command; returns what it printed."""
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", ENTER, "sh", self.root, "env", "-i",
                   f"PATH={PATH}", "HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", *words]
        done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=patience)
        if done.returncode != code:
            raise AssertionError(f"{' '.join(map(str, words))} ended with {done.returncode}, not {code}:\n{done.stdout}")
        return done.stdout

    def shell(self, text, **options):
        return self.run("sh", "-ec", text, **options)

    def files(self):
        """All files, for what an uninstallation leaves behind; without what every use of apt changes."""
        skipped = tuple(str(self.root / folder) for folder in ("dev", "proc", "sys", "tmp", "var/lib/apt", "var/cache", "var/log"))
        return {path for path in self.root.rglob("*") if path.is_file() and not str(path).startswith(skipped)}
