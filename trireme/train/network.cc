#include "trireme/train/network.h"

#include "trireme/core/error.h"
#include "trireme/train/loss.h"

namespace trireme::train {

std::string detail::count_text(InputCount count) {
  if (count.most > kMaxInputs) return "any number of";
  return count.least == count.most ? std::to_string(count.least) : fmt::format("{} to {}", count.least, count.most);
}

void detail::refuse_input_count(size_t given, InputCount taken) {
  throw UsageError("the network's forward() takes {} inputs, and got {}", count_text(taken), given);
}

}  // namespace trireme::train

namespace trireme {

torch::Tensor Loss::operator()(const train::Tensors& outputs, const train::Tensors& labels) const {
  if (of_lists_) return of_lists_(outputs, labels);
  if (outputs.size() != 1 || labels.size() != 1)
    throw UsageError(
        "the loss takes one output and one label, and there are {} outputs and {} labels; give a loss that takes "
        "lists: [](const train::Tensors& outputs, const train::Tensors& labels) {{ … }}",
        outputs.size(), labels.size());
  return of_one_(outputs[0], labels[0]);
}

}  // namespace trireme
