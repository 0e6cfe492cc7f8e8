// A GPT on three axes learns a text by its bytes and writes some: its layers lie one behind the other along `pipe`, each of
// them is split along `model`, and batches are averaged along `data`.
//
//   $ trireme launch -n 8 build/bin/example_gpt
//   GPT on 2 x 2 x 2 ranks (pipe x data x model)
//   loss 5.54 before, 0.05 after 80 steps
//   many oars, one stroke; many oars, one stroke; many oars, one str
//
// With a text of your own: trireme launch -n 8 build/bin/example_gpt book.txt --steps 2000
#include <trireme/trireme.h>
#include <unistd.h>

#include <fstream>

#include "terminal.h"

using namespace trireme;

namespace {

constexpr int64_t kContext = 64;
constexpr int kMicroBatches = 4;

// A mapped file stays readable after its name is gone.
data::Tokens built_in_text() {
  const auto file = std::filesystem::temp_directory_path() / fmt::format("trireme_gpt.{}.txt", getpid());
  std::ofstream out(file);
  for (int i = 0; i < 400; ++i) out << "many oars, one stroke; ";
  out.close();
  data::Tokens text(file, {.length = kContext});
  std::filesystem::remove(file);
  return text;
}

std::string letters(const torch::Tensor& tokens) {
  const torch::Tensor bytes = tokens.flatten().to(torch::kCPU, torch::kUInt8);
  return {reinterpret_cast<const char*>(bytes.data_ptr<uint8_t>()), static_cast<size_t>(bytes.numel())};
}

/// The likeliest bytes behind the prompt, one after the other. The last stage has the logits, each rank its part of them.
torch::Tensor written(Pipeline& pipe, torch::Tensor tokens, int count, const Mesh& mesh) {
  const int last_stage = mesh.size("pipe") - 1;
  for (int i = 0; i < count; ++i) {
    const int64_t seen = std::min(tokens.size(1), kContext);
    // What follows a token has no influence on it, so the rest of the context may be anything.
    const torch::Tensor window = torch::constant_pad_nd(tokens.slice(1, tokens.size(1) - seen), {0, kContext - seen});
    torch::Tensor next = torch::zeros({tokens.size(0), 1}, tokens.options());
    if (const std::vector<torch::Tensor> outputs = pipe.predict(window); !outputs.empty()) {
      std::vector<torch::Tensor> parts;
      all_gather(parts, outputs[0].select(1, seen - 1).contiguous(), mesh["model"]);
      next = torch::cat(parts, 1).argmax(1, /*keepdim=*/true);
    }
    broadcast(next, last_stage, mesh["pipe"]);
    tokens = torch::cat({tokens, next}, 1);
  }
  return tokens[0];
}

}  // namespace

int main(int argc, char** argv) try {
  const bool own = argc > 1 && argv[1][0] != '-';
  auto given = options(argc - own, argv + own, {{"--steps", 80}});
  World world = init_parallel_env();
  Mesh mesh(world, {{"pipe", world.size() % 4 == 0 ? 2 : 1}, {"data", -1}, {"model", world.size() % 2 == 0 ? 2 : 1}});
  const data::Tokens text = own ? data::Tokens(argv[1], {.length = kContext}) : built_in_text();
  data::Loader loader(text, {.batch_size = 16, .shuffle = true, .drop_last = true}, mesh["data"], world.device());

  torch::manual_seed(1);  // the same weights, split in any way
  const std::vector<models::NetworkLayer> layers = models::gpt_layers({.vocabulary = text.vocabulary(),
                                                                       .context = kContext,
                                                                       .width = 64,
                                                                       .heads = 4,
                                                                       .layers = 2,
                                                                       .dropout = 0,
                                                                       .sequence_parallel = true},
                                                                      mesh["model"]);
  const auto loss_of = [&](const torch::Tensor& logits, const torch::Tensor& targets) {
    return nn::parallel_cross_entropy(logits, targets, mesh["model"]);
  };
  Pipeline pipe({layers.begin(), layers.end()}, mesh["pipe"],
                {.micro_batches = kMicroBatches, .loss = loss_of, .data = mesh["data"]});
  optim::AdamW adam(pipe.parameters(), {.lr = 3e-3});

  double first = 0, last = 0;
  for (int step = 0; step < given["--steps"];)
    for (auto& [x, y] : loader) {
      last = pipe.train_batch(x, y, adam, {.clip_norm = 1}).item<double>();
      if (step == 0) first = last;
      if (++step == given["--steps"]) break;
    }

  const torch::Tensor prompt = text.get(0).data.slice(0, 0, 6).repeat({kMicroBatches, 1}).to(world.device());
  const std::string words = letters(written(pipe, prompt, 58, mesh));
  if (world.rank() == 0)
    std::cout << fmt::format("GPT on {} x {} x {} ranks (pipe x data x model)\n", mesh.size("pipe"), mesh.size("data"),
                             mesh.size("model"))
              << fmt::format("loss {:.2f} before, {:.2f} after {} steps\n", first, last, given["--steps"]) << words
              << std::endl;
  return last < first ? 0 : 1;
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
