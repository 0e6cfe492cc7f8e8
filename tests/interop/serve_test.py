"""Triton's own HTTP client against `trireme serve`: the KServe v2 protocol as real clients speak it."""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "serve"))

from serve_case import SECONDS, ServeCase, png  # noqa: E402
from trireme_test import ROOT, main  # noqa: E402


def client_python():
    """The Python that has tritonclient."""
    asked = subprocess.run(["bash", ROOT / "setup/setup.sh", "where", "client"], stdout=subprocess.PIPE, text=True, check=True)
    folder = Path(os.environ.get("TRIREME_CLIENT", asked.stdout.strip()))
    if not (folder / "bin/python").exists():
        raise AssertionError(f"no tritonclient in {folder}; run `make interop`, or setup/setup.sh interop")
    return folder / "bin/python"


class TritonClient(ServeCase):
    def test_every_call_that_a_client_needs(self):
        server = self.serve()
        picture = self.folder / "picture.png"
        picture.write_bytes(png(1))
        asked = subprocess.run([client_python(), HERE / "serve_peers.py", str(server.port), picture], stdout=subprocess.PIPE,
                               text=True, check=True, timeout=SECONDS)
        said = json.loads(asked.stdout)
        self.assertEqual([said[key] for key in ("live", "ready", "model_ready", "version_ready", "other_ready")],
                         [True, True, True, True, False])
        self.assertIn("binary_tensor_data", said["server"]["extensions"])
        self.assertEqual(said["model"]["inputs"], [{"name": "x", "datatype": "FP32", "shape": [-1, 3, 28, 28]}])
        for way in ("default", "json"):
            self.assertEqual(said[way], said["binary"])
        ours = server.post(png(1), path="/v1/predict?topk=4").json()["predictions"][0]
        for scores in said["pictures"]:
            for number, score in zip(ours["class_ids"], ours["scores"]):
                self.assertAlmostEqual(scores[number], score, places=5)
        best = [text.split(":") for text in said["classes"]]
        self.assertEqual([int(number) for _, number, _ in best], ours["class_ids"][:2])
        self.assertEqual([label for _, _, label in best], ours["label_names"][:2])
        self.assertRegex(said["bad_picture"], r"^data\[0\]: ")
        self.assertRegex(said["bad_shape"], r"expected \[pictures, 3, 28, 28\]")
        self.assertRegex(said["no_model"], "there are: LeNet")


if __name__ == "__main__":
    main()
