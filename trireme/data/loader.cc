#include "trireme/data/loader.h"

#include <errno.h>
#include <torch/torch.h>

#include <future>
#include <optional>

#include "trireme/core/error.h"
#include "trireme/pipeline/background.h"
#include "trireme/pipeline/sampler.h"

namespace trireme::data {
namespace {

SamplerOptions sampler_options(const Dataset* dataset, const LoaderOptions& options) {
  if (dataset == nullptr) throw UsageError("Loader: the dataset is a null pointer");
  return {.samples = dataset->size(),
          .batch_size = options.batch_size,
          .shuffle = options.shuffle,
          .drop_last = options.drop_last,
          .order = options.order,
          .seed = options.seed};
}

std::unique_ptr<Background> make_worker(int workers) {
  if (workers < 0 || workers > 1)
    throw UsageError("Loader: workers is {}; it may be 1, or 0 for reading in the calling thread", workers);
  return workers == 0 ? nullptr : std::make_unique<Background>("the data loader");
}

}  // namespace

class Loader::Impl {
 public:
  Impl(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options, RankInfo me, torch::Device device)
      : dataset_(std::move(dataset)),
        options_(options),
        device_(device),
        sampler_(sampler_options(dataset_.get(), options), me),
        worker_(make_worker(options.workers)) {}

  void start() {
    next_ = {};
    sampler_.start();
    advance();
  }

  /// Makes the next batch the current one; none at the end.
  void advance() {
    current_.reset();
    const auto plan = sampler_.plan();
    const int64_t step = sampler_.step();
    if (!plan || step == plan->steps()) {
      sampler_.next();  // ends the epoch
      return;
    }
    Batch batch = worker_ ? fetched(plan, step) : fetch(*dataset_, *plan, step);
    sampler_.next();  // only now is it consumed
    if (worker_ && step + 1 < plan->steps()) next_ = ask(plan, step + 1);
    current_ = Batch{batch.data.to(device_), batch.target.to(device_)};
  }

  std::optional<Batch>& current() { return current_; }
  const DistributedBatchSampler& sampler() const { return sampler_; }

  void set_epoch(int64_t epoch) {
    sampler_.set_epoch(epoch);
    next_ = {};
  }

  void load_state(const SamplerState& state) {
    sampler_.load_state(state);
    next_ = {};
  }

 private:
  using Plan = std::shared_ptr<const EpochPlan>;

  static Batch fetch(const Dataset& dataset, const EpochPlan& plan, int64_t step) {
    const torch::NoGradGuard no_grad;  // the worker's thread and the caller's must not differ
    return dataset.batch(plan.batch(step));
  }

  std::future<Batch> ask(const Plan& plan, int64_t step) {
    return worker_->run([dataset = dataset_, plan, step] { return fetch(*dataset, *plan, step); });
  }

  Batch fetched(const Plan& plan, int64_t step) {
    std::future<Batch> asked = next_.valid() ? std::move(next_) : ask(plan, step);
    if (asked.wait_for(options_.timeout) != std::future_status::ready)
      throw SystemError(ETIMEDOUT,
                        "Loader: batch {} of epoch {} was not ready after {} s; is the dataset's storage slow? "
                        "LoaderOptions::timeout allows more",
                        step, sampler_.epoch(), options_.timeout.count());
    return asked.get();
  }

  std::shared_ptr<const Dataset> dataset_;
  LoaderOptions options_;
  torch::Device device_;
  DistributedBatchSampler sampler_;
  std::optional<Batch> current_;
  std::future<Batch> next_;             // the sampler's next step, when it was asked for
  std::unique_ptr<Background> worker_;  // null: the calling thread reads
};

Loader::Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options, RankInfo me, torch::Device device)
    : impl_(std::make_unique<Impl>(std::move(dataset), options, me, device)) {}

Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;

Loader::Iterator Loader::begin() {
  impl_->start();
  return Iterator(*impl_);
}

int64_t Loader::size() const {
  return impl_->sampler().size();
}

int64_t Loader::epoch() const {
  return impl_->sampler().epoch();
}

void Loader::set_epoch(int64_t epoch) {
  impl_->set_epoch(epoch);
}

SamplerState Loader::state() const {
  return impl_->sampler().state();
}

void Loader::load_state(const SamplerState& state) {
  impl_->load_state(state);
}

Batch& Loader::Iterator::operator*() const {
  return *loader_->current();
}

Loader::Iterator& Loader::Iterator::operator++() {
  loader_->advance();
  return *this;
}

bool Loader::Iterator::operator==(std::nullptr_t) const {
  return !loader_->current();
}

}  // namespace trireme::data
