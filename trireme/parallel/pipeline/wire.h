// What the stages of a pipeline send each other: lists of tensors of any type and shape.
//
// Sends never wait. A rank receives from another in the order in which that one sends, which the schedule's table says;
// what comes before it is needed is put aside. So a schedule that respects the order of stages cannot lock up.
//
// The first batch of a kind (the signature) is learned: before each list goes a description. From the second on the
// descriptions are known, and the next list of each rank is received while this one computes.
//
// Messages to higher and to lower ranks have a group each: with NCCL two ranks that send to each other on one stream would
// wait for each other.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/comm/work.h"
#include "trireme/parallel/pipeline/schedule.h"

namespace trireme::parallel {

class Wire {
 public:
  using Tensors = std::vector<torch::Tensor>;

  /// Called by every rank of the pipeline.
  Wire(const Group& group, torch::Device device);

  /// A new batch. `signature`: the same on every rank, and another one when the shapes of the batch are others.
  void begin(const ScheduleTable& table, const PipelineShape& shape, uint64_t signature, bool learn_always);
  /// UsageError when the tensors are not those of this message in the first batch with the same signature.
  void send(const Message& message, const Tensors& tensors);
  /// The activations that came: leaves that require gradients where the sender's tensors do.
  Tensors receive(const Message& message);
  /// Gradients of these tensors will come by this message: of those that require one.
  void expect_gradients(const Message& message, const Tensors& tensors);
  /// Waits for what was sent.
  void end();
  /// Ends what is under way on every rank.
  void abort(const std::string& reason);

 private:
  struct Description {  // of a tensor
    c10::ScalarType type;
    std::vector<int64_t> sizes;
    bool needs_gradient;
    bool operator==(const Description&) const = default;
  };
  using Descriptions = std::vector<Description>;
  using Key = std::tuple<bool, int, int>;
  struct Line {  // from another rank
    std::vector<Message> order;
    size_t next = 0;  // to receive
    bool is_posted = false;
    Tensors tensors{};
    std::vector<Work> works{};
  };

  static Key key_of(const Message& message) { return {message.gradient, message.stage, message.micro_batch}; }
  static Descriptions describe_tensors(const Tensors& tensors);
  static std::string text_of(const Descriptions& descriptions);
  static torch::Tensor packed(const Descriptions& descriptions);
  static Descriptions unpacked(const torch::Tensor& numbers);

  const Group& group_to(int rank) const { return rank > rank_ ? upward_ : downward_; }
  const Group& group_from(int rank) const { return rank < rank_ ? upward_ : downward_; }
  int sender_of(const Message& message) const;
  void send_now(const torch::Tensor& tensor, int to);
  Descriptions receive_description(int from);
  Tensors buffers(const Descriptions& descriptions) const;
  void post(int from);
  void receive_next(int from);

  int rank_;
  Group upward_, downward_;
  torch::Device device_;

  PipelineShape shape_;
  bool learning_ = true;
  std::map<uint64_t, std::map<Key, Descriptions>> learned_;  // by signature
  std::map<Key, Descriptions>* known_ = nullptr;             // of this batch
  std::map<int, Line> lines_;
  std::map<Key, Tensors> aside_;
  std::vector<std::pair<Work, torch::Tensor>> under_way_;
};

}  // namespace trireme::parallel
