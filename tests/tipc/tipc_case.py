"""Test cases whose programs are small scripts: `train`, `eval`, `export` and `infer` note how they were called."""

from pathlib import Path

from trireme_test import ROOT, TRIREME, Case, read

SHORT = """\
===========================train_params===========================
model_name:tiny
python:python3
gpu_list:{gpu_list}
use-gpu:False
--epochs:lite_train_lite_infer=2|whole_train_whole_infer=90
--output-dir:./output/
--batch-size:lite_train_lite_infer=4|whole_train_whole_infer=128
--pretrained:null
train_model_name:latest
--data-path:./lite_data
##
trainer:{trainer}
{trainer}:{folder}/train
##
===========================eval_params===========================
eval:{folder}/eval
##
===========================infer_params===========================
--save-inference-dir:./output/infer/
--pretrained:
norm_export:{folder}/export
##
train_model:weights
infer_export:{folder}/export
##
inference:{folder}/infer
--use-gpu:False
--batch-size:1|4
--model-dir:./output/infer/
--img-path:./lite_data/val
--benchmark:True
"""

# The last word of each kind wins; `value --epochs "$@"` prints what stands behind --epochs=.
HELPERS = """value() { name=$1; shift; for word; do case $word in $name=*) echo "${word#*=}";; esac; done; }"""
PROGRAMS = {
    "train": 'folder=$(value --output-dir "$@"); mkdir -p $folder; '
    'echo "epochs $(value --epochs "$@") of $RANK/$WORLD_SIZE"; [ $RANK != 0 ] || echo weights >$folder/latest',
    "eval": 'echo "eval $(cat $(value --pretrained "$@"))"',
    "export": 'folder=$(value --save-inference-dir "$@"); mkdir -p $folder; cp $(value --pretrained "$@") $folder/',
    "infer": 'test -e $(value --model-dir "$@")/latest; '
    'printf "a.png:\\tclass id(s): [1, 2], score(s): [0.75, 0.25], label_name(s): []\\n"',
}


class TipcCase(Case):
    gpu_list, trainer = "cpu:2", "norm_train"

    def setUp(self):
        super().setUp()
        for name, body in PROGRAMS.items():
            self.program(name, body)
        self.config = self.folder / "case.txt"
        self.write_config()

    def program(self, name, body):
        self.script(name, f"set -e\n{HELPERS}\n{body}")

    def write_config(self, **changes):
        values = {"gpu_list": self.gpu_list, "trainer": self.trainer, "folder": self.folder, **changes}
        self.config.write_text(SHORT.format(**values))

    def start_tipc(self, *words, **options):
        return self.start_command([TRIREME, "tipc", *words], **options)

    def tipc(self, *words, timeout=60, **options):
        return self.start_tipc(*words, **options).wait(timeout)

    def run_chain(self, *words, mode="lite_train_lite_infer", **options):
        return self.tipc("run", self.config, mode, *words, **options)

    def output(self, name, mode="lite_train_lite_infer", folder=None):
        return read(Path(folder or self.folder) / "test_tipc/output/tiny" / mode / name)


def statuses(text):
    """[(how it ended, last word of the program's path)] of the status lines."""
    lines = [line for line in text.splitlines() if line.startswith("Run ") or line.startswith("Not run")]
    return [line.split(" - ")[0].split(" with")[0] for line in lines]


def zoo():
    """The names of all networks."""
    import re

    return re.findall(r'\{"(\w+)", ', (ROOT / "trireme/models/registry.cc").read_text())


def case_name(network):
    """The folder of its cases. PaddleClas and torchvision have names that differ only in case; folders must not."""
    others = {name for name in zoo() if name != network and name.lower() == network.lower()}
    return f"torchvision_{network}" if others and network.islower() else network
