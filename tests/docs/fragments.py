"""The C++ fragments of the pages as one source file, so that the compiler sees every call that a page shows.

A fragment is a part of a program. It becomes the body of a function; the names that it uses without
declaring them are declared before it, for each page under its name in CONTEXT. A program is compiled by run_test.py as its page says.
"""
import re

import pages

PRELUDE = """
#include <trireme/trireme.h>

#include <optional>
#include <string>
#include <vector>

using namespace trireme;

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x);
};
TORCH_MODULE(Net);
"""

ON_EVERY_PAGE = """
extern World world;
extern Net net;
extern torch::optim::Adam adam;
extern data::Loader train;
extern data::ImageDataset images;
extern torch::Tensor x, y;
"""

CONTEXT = {
    "docs/checkpoint.md": """
        extern DataParallel<Net> model;
        extern Net generator, discriminator;
        extern torch::optim::Adam adam_g, adam_d;
        extern Checkpoint checkpoint;
        extern Progress at;""",
    "docs/collectives.md": """
        extern torch::Tensor gradient;
        void compute_something_else();""",
    "docs/cookbook.md": "",
    "docs/data.md": """
        extern data::TensorDataset scenes;
        extern data::ImageList list;
        extern image::Transforms transforms;
        void step(torch::Tensor x, torch::Tensor y);""",
    "docs/data_parallel.md": """
        extern DataParallel<Net> model;
        extern data::Loader loader;
        extern std::vector<data::Batch> batches;
        torch::Tensor loss_of(int part);
        void step(data::Batch& batch);""",
    "docs/export.md": "",
    "docs/hybrid.md": """
        struct TwoLayersImpl : torch::nn::Module {
          torch::nn::Linear fc = nullptr;
          torch::Tensor forward(torch::Tensor x);
        };
        TORCH_MODULE(TwoLayers);
        extern ShardedDataParallel<TwoLayers> model;
        extern data::Loader loader;""",
    "docs/model.md": """
        extern Model model;
        extern data::FashionMnist test;""",
    "docs/porting_paddle.md": "",
    "docs/porting_pytorch.md": "",
    "docs/training.md": """
        extern DataParallel<Net> model;
        extern train::Step step;
        extern torch::Tensor left, right, shortcut;
        extern torch::nn::Conv2d conv1, conv2;
        extern Loss loss;
        torch::Tensor contrastive(torch::Tensor left, torch::Tensor right);
        torch::Tensor penalty(DataParallel<Net>& model);""",
}


def of_page(path):
    """(line, text) of each fragment."""
    page = pages.page(path)
    programs = {block.text for block in pages.marked_blocks(page)}
    return [(page.count("\n", 0, match.start(2)) + 1, match[2]) for match in pages.FENCED.finditer(page)
            if match[1] == "cpp" and match[2] not in programs]


def body(text):
    """Without what a function cannot hold, and without `…`, which stands for more of the same."""
    return re.sub(r"^#include.*|^using namespace.*|,? …", "", text, flags=re.M)


def source():
    """Each page is a namespace, and each fragment a function there. Errors are reported in the lines of the page."""
    parts = [PRELUDE]
    for path in map(pages.name_of, pages.all_pages()):
        for number, (line, text) in enumerate(of_page(path)):
            if number == 0:
                parts.append(f"namespace {re.sub(r'[^a-z]', '_', path.lower())} {{{ON_EVERY_PAGE}{CONTEXT[path]}")
            parts.append(f"int fragment_{number}() {{\n#line {line} \"{path}\"\n{body(text)}return 0;\n}}")
        if of_page(path):
            parts.append("}")
    return "\n".join(parts)


if __name__ == "__main__":
    print(source())
