#include "trireme/parallel/pipeline/reports.h"

#include <torch/torch.h>

#include <bit>
#include <exception>

#include "trireme/comm/collectives.h"
#include "trireme/comm/members.h"
#include "trireme/core/error.h"
#include "trireme/parallel/parameter_check.h"
#include "trireme/parallel/same_settings.h"
#include "trireme/parallel/together.h"

namespace trireme::parallel {
namespace {

using torch::Tensor;

int64_t signature_of(const std::vector<Tensor>& tensors, bool training) {
  size_t hash = training ? 1 : 2;
  const auto mix = [&](int64_t value) { hash = c10::hash_combine(hash, std::hash<int64_t>()(value)); };
  for (const Tensor& tensor : tensors) {
    mix(static_cast<int64_t>(tensor.scalar_type()));
    mix(tensor.dim());
    for (const int64_t size : tensor.sizes()) mix(size);
  }
  return static_cast<int64_t>(hash);
}

// Of the values, on whatever device and in whatever order they lie in memory. 0: there are none.
int64_t checksum_of_batch(const std::vector<Tensor>& tensors) {
  if (rows_of(tensors) < 0) return 0;
  size_t hash = 1;
  for (const Tensor& tensor : tensors)
    hash = c10::hash_combine(hash, std::hash<int64_t>()(checksum_of(tensor.detach().cpu().contiguous())));
  return hash == 0 ? 1 : static_cast<int64_t>(hash);
}

class Reports {
 public:
  enum Field {
    kProblem,
    kCall,
    kInputs,
    kTargets,
    kSignature,
    kTrained,
    kInputSum,
    kTargetSum,
    kClipNorm,
    kScale,
    kFields
  };

  /// Called by every rank.
  Reports(const std::array<int64_t, kFields>& mine, const Group& pipe)
      : pipe_(pipe), all_(torch::empty({pipe.size() * kFields}, torch::kLong)) {
    all_gather(all_, torch::tensor(torch::ArrayRef<int64_t>(mine), torch::kLong), pipe);
  }
  int ranks() const { return pipe_.size(); }
  int64_t operator()(int rank, Field which) const { return all_.const_data_ptr<int64_t>()[rank * kFields + which]; }
  std::string place(int rank) const { return place_of(pipe_, rank); }

  void require_same_call() const {
    for (int rank = 1; rank < ranks(); ++rank)
      if ((*this)(rank, kCall) != (*this)(0, kCall))
        throw UsageError(
            "Pipeline: {} calls another function than {}, or with other options (optimizer, scaler, clip_norm, "
            "no_sync); every rank makes the same calls",
            place(rank), place(0));
  }
  void require_same_number(Field which, const char* name) const {
    const auto number = [&](int rank) { return std::bit_cast<double>((*this)(rank, which)); };
    for (int rank = 1; rank < ranks(); ++rank)
      if (number(rank) != number(0))
        throw UsageError("Pipeline: {} is {} on {} and {} on {}; give every rank the same", name, number(0), place(0),
                         number(rank), place(rank));
  }
  // Of ranks that have any.
  void require_same_values(Field which, const char* name) const {
    int first = 0;
    while (first < ranks() && (*this)(first, which) == 0) ++first;
    for (int rank = first + 1; rank < ranks(); ++rank)
      if ((*this)(rank, which) != 0 && (*this)(rank, which) != (*this)(first, which))
        throw UsageError(
            "Pipeline: {} and {} have different {}, but the first rank's inputs are trained with the last rank's "
            "targets; give all ranks of the pipe axis the same batch, by Loader(dataset, mesh[\"data\"])",
            place(first), place(rank), name);
  }

 private:
  const Group& pipe_;
  Tensor all_;
};

// Which parameters of this rank are trained: it decides which tensors between the stages need gradients.
int64_t trained_parameters(const BatchReports::Stages& stages) {
  size_t hash = 0;
  for (const auto& module : stages)
    for (const Tensor& parameter : module->parameters())
      hash = c10::hash_combine(hash, parameter.requires_grad() ? 1 : 2);
  return static_cast<int64_t>(hash);
}

// What this rank says. The values of the batch are compared where `compared`.
std::array<int64_t, Reports::kFields> report_on(const BatchCall& batch, const std::string& problem, bool exchanges,
                                                int64_t trained, bool compared) {
  const std::vector<Tensor>&inputs = batch.inputs.list(), &targets = batch.targets.list();
  const int64_t call = static_cast<int64_t>(batch.kind) + (batch.scaler ? 8 : 0) + (batch.optimizer ? 16 : 0) +
                       (batch.clip_norm > 0 ? 32 : 0) + (exchanges ? 64 : 0);
  return {problem.empty() ? 0 : 1,
          call,
          rows_of(inputs),
          rows_of(targets),
          signature_of(inputs, batch.kind == BatchCall::Kind::train),
          trained,
          compared ? checksum_of_batch(inputs) : 0,
          compared ? checksum_of_batch(targets) : 0,
          std::bit_cast<int64_t>(batch.clip_norm),
          std::bit_cast<int64_t>(batch.scaler ? batch.scaler->current_scale() : 1.0)};
}

}  // namespace

int64_t rows_of(const std::vector<Tensor>& tensors) {
  if (tensors.empty()) return -1;
  for (const Tensor& tensor : tensors)
    if (!tensor.defined() || tensor.dim() == 0 || tensor.size(0) != tensors[0].size(0)) return -2;
  return tensors[0].size(0);
}

// The values are compared in calls 1, 2, 4, 8 and so on of each kind.
BatchReports::Agreed BatchReports::agree_along_pipe(const BatchCall& batch, const std::string& problem, bool exchanges,
                                                    int micro_batches) {
  const bool compared = std::has_single_bit(++calls_.at(static_cast<size_t>(batch.kind))) && problem.empty();
  const Reports reports(report_on(batch, problem, exchanges, trained_parameters(stages_), compared), pipe_);
  const int last = pipe_.size() - 1;
  for (int rank = 0; rank <= last; ++rank)
    if (reports(rank, Reports::kProblem) != 0)
      together(pipe_, [&] {
        if (!problem.empty()) throw UsageError("Pipeline: {}", problem);
      });
  reports.require_same_call();
  reports.require_same_number(Reports::kClipNorm, "clip_norm");
  reports.require_same_number(Reports::kScale, "the scale of the loss");
  reports.require_same_values(Reports::kInputSum, "inputs");
  reports.require_same_values(Reports::kTargetSum, "targets");
  Agreed all{.rows = reports(0, Reports::kInputs)};
  for (int rank = 0; rank <= last; ++rank)
    all.trained = c10::hash_combine(all.trained, static_cast<uint64_t>(reports(rank, Reports::kTrained)));
  all.signature = c10::hash_combine(static_cast<uint64_t>(reports(0, Reports::kSignature)), all.trained);
  if (batch.kind != BatchCall::Kind::predict && reports(last, Reports::kTargets) != all.rows)
    throw UsageError("Pipeline: {} has inputs of {} rows, but {} targets of {}", reports.place(0), all.rows,
                     reports.place(last), reports(last, Reports::kTargets));
  if (all.rows < micro_batches)
    throw UsageError(
        "Pipeline: {}: a batch of {} rows cannot be cut into {} micro-batches; take larger batches or fewer "
        "micro-batches",
        own_place(pipe_), all.rows, micro_batches);
  return all;
}

// What one pipeline refuses its neighbours along the data axis refuse too: they would wait for it, or, if the program
// goes on after the error, average other steps with its own.
BatchReports::Replicas BatchReports::refuse_along_data(const std::function<void()>& check,
                                                       const std::function<uint64_t()>& replica) const {
  std::exception_ptr refusal;
  try {
    check();
  } catch (const UsageError&) {
    refusal = std::current_exception();
  }
  const auto number = replica && !refusal ? static_cast<int64_t>(replica() >> 1) : 0;
  const Tensor most = torch::tensor({int64_t{refusal ? 1 : 0}, number, -number}, torch::kLong);
  all_reduce(most, ReduceOp::max, data_);
  const int64_t* found = most.const_data_ptr<int64_t>();
  if (found[0] == 0) return found[1] == -found[2] ? Replicas::alike : Replicas::differ;
  together(data_, [&] {
    if (refusal) std::rethrow_exception(refusal);
  });
  return Replicas::alike;
}

// What must be the same on all ranks of the data axis, a line each.
std::vector<std::string> BatchReports::call_and_frozen(BatchCall::Kind kind) const {
  if (kind != BatchCall::Kind::train) return {"a call of eval_batch()"};
  std::vector<std::string> lines{"a call of train_batch() or accumulate()"};
  for (const auto& module : stages_)
    for (const auto& item : module->named_parameters())
      lines.push_back(fmt::format("{} parameter {}", item.value().requires_grad() ? "trained" : "frozen", item.key()));
  return lines;
}

void BatchReports::refuse_other_replicas(BatchCall::Kind kind) const {
  std::exception_ptr difference;
  try {
    require_same_settings("Pipeline", call_and_frozen(kind), data_);
  } catch (const UsageError&) {
    difference = std::current_exception();
  }
  together(pipe_, [&] {
    if (difference) std::rethrow_exception(difference);
  });
}

}  // namespace trireme::parallel
