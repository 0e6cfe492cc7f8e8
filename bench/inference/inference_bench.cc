// inference_bench SECONDS MODEL_DIR ENGINE PRECISION BATCH IN OUT: how long the engine takes for a batch that lies in
// memory. IN is a file with the floats of one batch, OUT gets the scores. Prints the median in milliseconds.
#include <fmt/core.h>

#include <chrono>
#include <cstring>
#include <string>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/deploy/infer/latency.h"
#include "trireme/deploy/infer/predictor.h"

namespace {

using namespace trireme;
using Time = std::chrono::steady_clock;

infer::Buffer load(const std::string& file, size_t size) {
  const auto bytes = read_file(file, size_t{1} << 30);
  if (!bytes || bytes->size() != size * sizeof(float)) throw UsageError("{}: expected {} floats", file, size);
  infer::Buffer images(size);
  std::memcpy(images.data(), bytes->data(), bytes->size());
  return images;
}

void bench(char** words) {
  const double seconds = std::stod(words[0]);
  const infer::Predictor predictor(
      words[1], {.engine = infer::parse_engine(words[2]), .precision = infer::parse_precision(words[3])});
  const size_t batch = std::stoul(words[4]);
  const infer::Buffer images = load(words[5], batch * predictor.input_elements());
  infer::Buffer scores(batch * static_cast<size_t>(predictor.class_num()));
  constexpr int kWarmUp = 10;
  for (int i = 0; i < kWarmUp; ++i) predictor.scores(images.view(), scores.view());
  infer::Latency latency;
  const auto end = Time::now() + std::chrono::duration<double>(seconds);
  while (Time::now() < end || latency.count() == 0) {
    const auto begin = Time::now();
    predictor.scores(images.view(), scores.view());
    latency.add(Time::now() - begin);
  }
  write_file_atomically(words[6], {reinterpret_cast<const char*>(scores.data()), scores.size() * sizeof(float)});
  fmt::print("{:.4f} {}\n", latency.percentile(50), predictor.engine_name());
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 8) throw UsageError("inference_bench SECONDS MODEL_DIR ENGINE PRECISION BATCH IN OUT");
  bench(argv + 1);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "inference_bench: {}\n", error.what());
  return 1;
}
