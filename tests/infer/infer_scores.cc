// infer_scores MODEL_DIR ENGINE PRECISION THREADS BATCH…: for each batch size the scores of pictures made of numbers
// that are the same everywhere, a line for each picture. THREADS callers ask at once and must all be told the same.
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/deploy/infer/predictor.h"

namespace {

using namespace trireme;
using Scores = std::vector<float>;

/// Picture i is the same in every batch.
Scores images(size_t batch, size_t elements) {
  Scores numbers(batch * elements);
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = std::sin(0.37F * static_cast<float>(i % elements) + static_cast<float>(i / elements));
  return numbers;
}

Scores ask(const infer::Predictor& predictor, const Scores& input, int threads) {
  std::vector<Scores> found(static_cast<size_t>(threads));
  std::vector<std::thread> callers;
  for (Scores& scores : found)
    callers.emplace_back([&] {
      for (int round = 0; round < 3; ++round) scores = predictor.scores(input);
    });
  for (std::thread& caller : callers) caller.join();
  for (const Scores& scores : found)
    if (scores != found.front()) throw UsageError("callers at the same time were told different scores");
  return found.front();
}

void show(const Scores& scores, size_t classes) {
  for (size_t i = 0; i < scores.size(); i += classes)
    fmt::print("{:.8f}\n", fmt::join(scores.begin() + static_cast<std::ptrdiff_t>(i),
                                     scores.begin() + static_cast<std::ptrdiff_t>(i + classes), " "));
}

void run(const std::vector<std::string>& words) {
  const infer::Predictor predictor(
      words[0],
      {.engine = infer::parse_engine(words[1]), .precision = infer::parse_precision(words[2]), .cpu_threads = 1});
  fmt::print(stderr, "{}\n", predictor.engine_name());
  for (size_t i = 4; i < words.size(); ++i)
    show(ask(predictor, images(std::stoul(words[i]), predictor.input_elements()), std::stoi(words[3])),
         static_cast<size_t>(predictor.class_num()));
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 6) throw UsageError("infer_scores MODEL_DIR ENGINE PRECISION THREADS BATCH…");
  run({argv + 1, argv + argc});
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "infer_scores: {}\n", error.what());
  return 1;
}
