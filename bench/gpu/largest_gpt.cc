// One GPT on one GPU, trained with Adam: plain, or with weights, gradients and states in host memory.
//
//   largest_gpt plain layers=12 ballast=125
//   largest_gpt offload layers=48 ballast=125
//
// `ballast` GiB of the card are taken beforehand, to stand for a smaller card. Prints parameters, tokens a second and the
// loss of the last step; an out-of-memory error ends it with 1.
#include <trireme/trireme.h>

#include <charconv>
#include <chrono>
#include <iostream>
#include <map>

using namespace trireme;

namespace {

std::map<std::string, int64_t> settings_of(int count, char** words) {
  std::map<std::string, int64_t> numbers = {{"layers", 12}, {"width", 2048}, {"length", 512},
                                            {"batch", 8},   {"steps", 4},    {"ballast", 0}};
  for (int i = 2; i < count; ++i) {
    const std::string_view word = words[i];
    const size_t sign = word.find('=');
    const auto found = sign == word.npos ? numbers.end() : numbers.find(std::string(word.substr(0, sign)));
    if (found == numbers.end()) throw UsageError("largest_gpt: what is '{}'?", word);
    std::from_chars(word.data() + sign + 1, word.data() + word.size(), found->second);
  }
  return numbers;
}

/// The fastest step's tokens a second, and the last loss. `loss_of` runs forward.
template <typename LossOf>
void train(LossOf loss_of, const std::vector<torch::Tensor>& parameters, std::map<std::string, int64_t>& numbers,
           int64_t parameter_count, const std::string& mode) {
  torch::optim::Adam adam(parameters, 1e-4);
  double best = 1e9;
  double loss = 0;
  for (int64_t step = 0; step < numbers["steps"]; ++step) {
    torch::manual_seed(7);  // the same tokens each time: the loss must fall
    const torch::Tensor tokens =
        torch::randint(0, 256, {numbers["batch"], numbers["length"] + 1}).to(torch::Device(torch::kCUDA, 0));
    const auto start = std::chrono::steady_clock::now();
    const torch::Tensor now = loss_of(tokens.narrow(1, 0, numbers["length"]), tokens.narrow(1, 1, numbers["length"]));
    now.backward();
    adam.step();
    adam.zero_grad();
    loss = now.item<double>();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::cout << fmt::format("mode={} parameters={} tokens_per_s={:.0f} loss={:.4f}\n", mode, parameter_count,
                           static_cast<double>(numbers["batch"] * numbers["length"]) / best, loss)
            << std::flush;
}

void run(const std::string& mode, std::map<std::string, int64_t> numbers) {
  const World world = init_parallel_env();
  const torch::Device card(torch::kCUDA, 0);
  const torch::Tensor ballast =
      torch::empty({numbers["ballast"] << 30}, torch::TensorOptions(torch::kByte).device(card));
  torch::manual_seed(1);
  models::Gpt net = models::gpt({.vocabulary = 256,
                                 .context = numbers["length"],
                                 .width = numbers["width"],
                                 .heads = 16,
                                 .layers = numbers["layers"],
                                 .dropout = 0,
                                 .recompute = true});
  int64_t count = 0;
  for (const auto& parameter : net->parameters()) count += parameter.numel();
  if (mode == "plain") {
    net->to(card);
    train([&](const auto& x, const auto& y) { return net->loss(x, y); }, net->parameters(), numbers, count, mode);
  } else {
    ShardedDataParallel<models::Gpt> model(net, world, {.shard = Shard::parameters, .unit_size = 200, .offload = true});
    train([&](const auto& x, const auto& y) { return model->loss(x, y); }, model.parameters(), numbers, count, mode);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  run(argc > 1 ? argv[1] : "plain", settings_of(argc, argv));
} catch (const c10::Error& error) {
  std::cerr << error.what_without_backtrace() << "\n";
  return 1;
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
