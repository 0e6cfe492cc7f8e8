#include "trireme/optim/describe_options.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <functional>
#include <sstream>

namespace trireme::optim {

namespace {

// An optimizer of the program's own may lack the functions that save its options.
std::string saved(const torch::optim::OptimizerOptions& options) try {
  torch::serialize::OutputArchive archive;
  options.serialize(archive);
  std::ostringstream bytes;
  archive.save_to(bytes);
  return bytes.str();
} catch (const c10::Error&) {
  return "";
}

std::string rate(const torch::optim::OptimizerOptions& options) try {
  return fmt::format("lr = {}", options.get_lr());
} catch (const c10::Error&) {
  return "a rate of its own";
}

}  // namespace

std::vector<std::string> describe_options(const torch::optim::Optimizer& optimizer) {
  std::vector<std::string> lines;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups())
    lines.push_back(fmt::format("an optimizer with {} for parameter group {} (options {:x})", rate(group.options()),
                                lines.size(), std::hash<std::string>()(saved(group.options()))));
  return lines;
}

}  // namespace trireme::optim
