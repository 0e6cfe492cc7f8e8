#include "trireme/parallel/pipeline/wire.h"

#include <torch/torch.h>

#include <algorithm>

#include "trireme/comm/collectives.h"
#include "trireme/comm/members.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::parallel {
namespace {

constexpr size_t kMostSignatures = 64;  // more batches of different shapes than anyone has; then all are learned again

}  // namespace

Wire::Wire(const Group& group, torch::Device device)
    : rank_(group.rank()), upward_(duplicate(group)), downward_(duplicate(group)), device_(device) {}

Wire::Descriptions Wire::describe_tensors(const Tensors& tensors) {
  Descriptions all;
  for (const torch::Tensor& tensor : tensors)
    all.push_back({tensor.scalar_type(), tensor.sizes().vec(), tensor.requires_grad()});
  return all;
}

std::string Wire::text_of(const Descriptions& descriptions) {
  std::vector<std::string> texts;
  for (const Description& one : descriptions)
    texts.push_back(fmt::format("{}{}{}", c10::toString(one.type), c10::str(one.sizes),
                                one.needs_gradient ? "" : " without gradient"));
  return join(texts, ", ");
}

// Of each tensor: type, whether it needs a gradient, the number of dimensions, and these.
torch::Tensor Wire::packed(const Descriptions& descriptions) {
  std::vector<int64_t> numbers;
  for (const Description& one : descriptions) {
    numbers.insert(numbers.end(), {static_cast<int64_t>(one.type), one.needs_gradient ? 1 : 0,
                                   static_cast<int64_t>(one.sizes.size())});
    numbers.insert(numbers.end(), one.sizes.begin(), one.sizes.end());
  }
  return torch::tensor(numbers, torch::kLong);
}

Wire::Descriptions Wire::unpacked(const torch::Tensor& numbers) {
  Descriptions all;
  const int64_t *next = numbers.const_data_ptr<int64_t>(), *const end = next + numbers.numel();
  while (next < end) {
    const int64_t* const sizes = next + 3;
    all.push_back({static_cast<c10::ScalarType>(next[0]), std::vector<int64_t>(sizes, sizes + next[2]), next[1] != 0});
    next = sizes + next[2];
  }
  return all;
}

void Wire::begin(const ScheduleTable& table, const PipelineShape& shape, uint64_t signature, bool learn_always) {
  shape_ = shape;
  if (learned_.size() > kMostSignatures) learned_.clear();
  learning_ = learn_always || !learned_.contains(signature);
  known_ = &learned_[signature];
  if (learning_) known_->clear();
  aside_.clear();
  lines_.clear();
  for (int rank = 0; rank < shape.ranks; ++rank) {
    if (rank == rank_) continue;
    std::vector<Message> order = messages(table, shape, rank, rank_);
    if (order.empty()) continue;
    lines_[rank].order = std::move(order);
    post(rank);
  }
}

int Wire::sender_of(const Message& message) const {
  return shape_.rank_of(message.stage + (message.gradient ? 1 : -1));
}

void Wire::send_now(const torch::Tensor& tensor, int to) {
  std::erase_if(under_way_, [](const auto& one) { return one.first.done(); });
  under_way_.emplace_back(isend(tensor, to, group_to(to)), tensor);
}

void Wire::send(const Message& message, const Tensors& tensors) {
  const int to = shape_.rank_of(message.stage);
  if (to == rank_) {
    Tensors& here = aside_[key_of(message)];
    for (const torch::Tensor& tensor : tensors)
      here.push_back(tensor.detach().requires_grad_(!message.gradient && tensor.requires_grad()));
    return;
  }
  if (!message.gradient) {
    const Descriptions now = describe_tensors(tensors);
    if (learning_) {
      const torch::Tensor numbers = packed(now);
      send_now(torch::tensor({numbers.numel()}, torch::kLong), to);
      send_now(numbers, to);
      (*known_)[key_of(message)] = now;
    } else if (known_->at(key_of(message)) != now) {
      throw UsageError(
          "the outputs for the next stage are {}, but in an earlier batch of the same shapes they were {}; with "
          "outputs that change set .dynamic_shapes = true",
          text_of(now), text_of(known_->at(key_of(message))));
    }
  }
  for (const torch::Tensor& tensor : tensors) send_now(tensor.detach().to(device_).contiguous(), to);
}

void Wire::expect_gradients(const Message& message, const Tensors& tensors) {
  if (!learning_) return;
  Descriptions needed = describe_tensors(tensors);
  std::erase_if(needed, [](const Description& one) { return !one.needs_gradient; });
  (*known_)[key_of(message)] = std::move(needed);
}

Wire::Tensors Wire::buffers(const Descriptions& descriptions) const {
  Tensors tensors;
  for (const Description& one : descriptions)
    tensors.push_back(torch::empty(one.sizes, torch::TensorOptions(device_).dtype(one.type)));
  return tensors;
}

// Begins to receive the next message, when its description is known.
void Wire::post(int from) {
  Line& line = lines_.at(from);
  if (line.next == line.order.size()) return;
  const auto known = known_->find(key_of(line.order[line.next]));
  if (learning_ || known == known_->end()) return;
  line.tensors = buffers(known->second);
  line.works.clear();
  for (const torch::Tensor& tensor : line.tensors) line.works.push_back(irecv(tensor, from, group_from(from)));
  line.is_posted = true;
}

Wire::Descriptions Wire::receive_description(int from) {
  const torch::Tensor length = torch::empty({1}, torch::kLong);
  recv(length, from, group_from(from));
  const torch::Tensor numbers = torch::empty({length.item<int64_t>()}, torch::kLong);
  recv(numbers, from, group_from(from));
  return unpacked(numbers);
}

void Wire::receive_next(int from) {
  Line& line = lines_.at(from);
  const Message message = line.order.at(line.next++);
  const Key key = key_of(message);
  Tensors& tensors = aside_[key];
  if (line.is_posted) {
    for (const Work& work : line.works) work.wait();
    tensors = std::move(line.tensors);
    line.is_posted = false;
  } else {
    if (!message.gradient) (*known_)[key] = receive_description(from);
    tensors = buffers(known_->at(key));
    for (const torch::Tensor& tensor : tensors) recv(tensor, from, group_from(from));
  }
  if (!message.gradient)
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i].requires_grad_(known_->at(key)[i].needs_gradient);
  post(from);
}

Wire::Tensors Wire::receive(const Message& message) {
  const int from = sender_of(message);
  while (!aside_.contains(key_of(message))) receive_next(from);
  return std::move(aside_.extract(key_of(message)).mapped());
}

void Wire::end() {
  for (const auto& [work, tensor] : under_way_) work.wait();
  under_way_.clear();
}

void Wire::abort(const std::string& reason) {
  if (upward_.size() < 2) return;
  upward_.abort(reason);
  downward_.abort(reason);
}

}  // namespace trireme::parallel
