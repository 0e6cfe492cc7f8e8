// Reads and writes files for io_test.py, which compares them with those of Python's packages:
//
//   io_dump make OUT          a safetensors file with every dtype: the bytes 0, 1, 2 … as numbers of that type
//   io_dump copy IN OUT       loads a safetensors file and saves what it got
//   io_dump events FOLDER     an event file with scalars
//   io_dump fit FOLDER        the event file of a Model: two epochs of four steps
#include <fmt/core.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/data/tensor_dataset.h"
#include "trireme/io/format/events.h"
#include "trireme/io/safetensors.h"
#include "trireme/train/callbacks.h"
#include "trireme/train/model.h"

using namespace trireme;

namespace {

void make(const std::string& out) {
  const torch::Tensor bytes = torch::arange(48, torch::kByte).view({2, 24});
  io::TensorMap tensors;
  for (const auto type :
       {torch::kDouble, torch::kFloat, torch::kHalf, torch::kBFloat16, torch::kFloat8_e4m3fn, torch::kFloat8_e5m2,
        torch::ScalarType::Float8_e8m0fnu, torch::kComplexFloat, torch::kLong, torch::kInt, torch::kShort, torch::kChar,
        torch::kUInt64, torch::kUInt32, torch::kUInt16, torch::kByte})
    tensors.insert(c10::toString(type), bytes.view(type));
  tensors.insert("Bool", bytes.remainder(2).to(torch::kBool));
  tensors.insert("scalar", torch::tensor(2.5));
  tensors.insert("nothing", torch::empty({0, 3}));
  io::save_safetensors(out, tensors, {{"made by", "io_dump"}});
}

void events(const std::string& folder) {
  io::EventWriter writer(folder);
  for (int64_t step = 0; step < 1000; ++step) writer.add_scalar("train/loss", 0.5 * static_cast<double>(step), step);
  writer.add_scalar("lr", 1e-3, int64_t{1} << 40);
}

void fit(const std::string& folder) {
  torch::manual_seed(1);
  const data::TensorDataset samples(torch::randn({32, 4}), torch::zeros(32, torch::kLong));
  Model model(torch::nn::Linear(4, 2));
  model.prepare({.optimizer = [](auto parameters) { return torch::optim::SGD(parameters, 0.25); },
                 .loss = torch::nn::CrossEntropyLoss()});
  model.fit(samples, {.eval = samples,
                      .batch_size = 8,
                      .epochs = 2,
                      .log_freq = 1,
                      .verbose = 0,
                      .callbacks = {callback::TensorBoard(folder)}});
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() == 2 && words[0] == "make")
      make(words[1]);
    else if (words.size() == 3 && words[0] == "copy")
      io::save_safetensors(words[2], io::load_safetensors(words[1]));
    else if (words.size() == 2 && words[0] == "events")
      events(words[1]);
    else if (words.size() == 2 && words[0] == "fit")
      fit(words[1]);
    else
      throw UsageError("io_dump make OUT | copy IN OUT | events FOLDER | fit FOLDER");
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return error.exit_code();
  }
}
