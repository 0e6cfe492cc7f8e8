#include "trireme/train/trainer/memory.h"

#include <c10/util/Exception.h>

#include <new>
#include <optional>
#include <string_view>

#include "trireme/core/error.h"
#include "trireme/core/memory.h"

namespace trireme::trainer {
namespace {

// libtorch's allocator for the CPU throws a plain c10::Error, which only its text tells apart (as of 2.11); those for
// GPUs throw c10::OutOfMemoryError.
constexpr const char* kNoCpuMemory = "can't allocate memory";

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

std::string reason_of(const std::exception& error) {
  const auto* torch = dynamic_cast<const c10::Error*>(&error);
  return first_line(torch != nullptr ? torch->what_without_backtrace() : error.what());
}

std::string size_text(const std::optional<config::DataLoader>& loader, const char* name) {
  return loader ? fmt::format(" DataLoader.{}.sampler.batch_size is {};", name, loader->sampler.batch_size) : "";
}

}  // namespace

void require_memory(const config::DataLoader& loader, const BatchSize& batch) {
  const double bytes = static_cast<double>(batch.rows) * static_cast<double>(batch.sample_bytes);
  const auto there = static_cast<double>(memory_of_machine());
  if (bytes <= there) return;
  const char* key = loader.sampler.first_bs > 0 ? "first_bs" : "batch_size";
  loader.sampler.node.at(key).fail(
      "the {} images of a batch need {}, and this machine has {}; make it smaller (-o {}=N; Global.update_freq adds "
      "several batches up to one step)",
      batch.rows, bytes_text(bytes), bytes_text(there), loader.sampler.node.at(key).path());
}

bool out_of_memory(const std::exception& error) {
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
         dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         std::string_view(error.what()).find(kNoCpuMemory) != std::string_view::npos;
}

std::string memory_shortage(const std::exception& error) {
  return fmt::format("there is not enough memory: {}. This machine has {}", reason_of(error),
                     bytes_text(static_cast<double>(memory_of_machine())));
}

std::string memory_advice(const config::TrainConfig& config, const std::exception& error) {
  return fmt::format(
      "{};{}{} make batches or images smaller (Global.update_freq adds several batches up to one step), or "
      "loader.num_workers, each of which reads ahead",
      memory_shortage(error), size_text(config.train, "Train"), size_text(config.eval, "Eval"));
}

}  // namespace trireme::trainer
