#include "trireme/data/loader.h"

#include <errno.h>
#include <torch/torch.h>

#include <deque>
#include <future>
#include <mutex>
#include <optional>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/parallel_env.h"
#include "trireme/core/training_note.h"
#include "trireme/core/workers.h"
#include "trireme/data/device_copy.h"
#include "trireme/data/order/sampler.h"
#include "trireme/watch/recorder.h"

namespace trireme::data {
namespace {

[[gnu::section(".note.trireme"), gnu::used]] const TrainingNote kLoaderNote{};

constexpr int kMaxWorkers = 1024;
constexpr int kMaxPrefetch = 1024;

SamplerOptions sampler_options(const Dataset* dataset, const LoaderOptions& options) {
  if (dataset == nullptr) throw UsageError("Loader: the dataset is a null pointer");
  return {.samples = dataset->size(),
          .batch_size = options.batch_size,
          .shuffle = options.shuffle,
          .drop_last = options.drop_last,
          .pad = options.pad,
          .order = options.order,
          .seed = options.seed,
          .multi_scale = options.multi_scale};
}

// 1 where the environment cannot be read: init_parallel_env() says what is wrong with it.
int ranks_of_job() {
  try {
    return get_world_size();
  } catch (const UsageError&) {
    return 1;
  }
}

void warn_if_ranks_read_the_same(int64_t samples) {
  static std::once_flag warned;
  const int ranks = ranks_of_job();
  if (ranks > 1)
    std::call_once(warned, [&] {
      log_warning(
          "Loader: this job has {} ranks, and each of them reads all {} samples; pass the world as the third argument: "
          "Loader(dataset, options, world), or RankInfo{{0, 1}} where that is meant",
          ranks, samples);
    });
}

std::unique_ptr<Workers> make_workers(const LoaderOptions& options) {
  if (options.workers < 0 || options.workers > kMaxWorkers)
    throw UsageError("Loader: workers is {}; it may be from 1 to {}, or 0 for reading in the calling thread",
                     options.workers, kMaxWorkers);
  if (options.prefetch < 1 || options.prefetch > kMaxPrefetch)
    throw UsageError("Loader: prefetch is {}; it may be from 1 to {} batches for each worker", options.prefetch,
                     kMaxPrefetch);
  return options.workers == 0 ? nullptr : std::make_unique<Workers>(options.workers, "the data loader");
}

}  // namespace

class Loader::Impl {
 public:
  Impl(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options, RankInfo me, torch::Device device)
      : dataset_(std::move(dataset)),
        options_(options),
        me_(me),
        device_(device),
        sampler_(sampler_options(dataset_.get(), options), me),
        copy_(device),
        workers_(make_workers(options)) {}

  void start() {
    ++loop_;
    forget();
    sampler_.start();
    advance();
  }

  /// Makes the next batch the current one; none at the end.
  void advance() {
    const watch::PhaseScope phase(watch::Phase::data);
    current_.reset();
    const auto plan = sampler_.plan();
    const int64_t step = sampler_.step();
    if (!plan || step == plan->steps()) {
      sampler_.next();  // ends the epoch
      return;
    }
    if (!copy_.on_its_way()) copy_.send(workers_ ? fetched(plan, step) : fetch(*dataset_, *plan, step, device_));
    sampler_.next();  // only now is it consumed
    Batch batch = copy_.receive();
    if (workers_) {
      ask_ahead(plan, step + 1);
      send_ahead(step + 1);
    }
    if (batch.data.defined() && batch.data.dim() > 0) watch::count_samples(batch.data.size(0));
    current_ = std::move(batch);
  }

  std::optional<Batch>& current() { return current_; }
  int64_t loop() const { return loop_; }
  const DistributedBatchSampler& sampler() const { return sampler_; }
  const std::shared_ptr<const Dataset>& dataset() const { return dataset_; }
  const LoaderOptions& options() const { return options_; }
  RankInfo me() const { return me_; }

  void set_epoch(int64_t epoch) {
    sampler_.set_epoch(epoch);
    forget();
  }

  void load_state(const SamplerState& state) {
    sampler_.load_state(state);
    forget();
    const int64_t samples = dataset_->size();
    if (state.samples != samples && me_.rank == 0)
      log_warning("Loader: the dataset had {} samples and now has {}; epoch {} begins with all of them", state.samples,
                  samples, state.epoch);
  }

 private:
  using Plan = std::shared_ptr<const EpochPlan>;
  struct Asked {
    int64_t step;
    std::shared_future<Batch> batch;  // shared: so that one can look without taking
  };

  static Batch fetch(const Dataset& dataset, const EpochPlan& plan, int64_t step, torch::Device device) {
    const torch::NoGradGuard no_grad;  // the workers' threads and the caller's must not differ
    return pinned(dataset.batch(plan.pick(step)), device);
  }

  Asked ask(const Plan& plan, int64_t step) {
    auto job = [dataset = dataset_, plan, step, device = device_] { return fetch(*dataset, *plan, step, device); };
    return {step, workers_->run(std::move(job)).share()};
  }

  /// Keeps the workers busy: from the next step on, or behind what was asked for already.
  void ask_ahead(const Plan& plan, int64_t next) {
    const auto most = static_cast<size_t>(options_.workers) * static_cast<size_t>(options_.prefetch);
    int64_t step = asked_.empty() ? next : asked_.back().step + 1;
    for (; asked_.size() < most && step < plan->steps(); ++step) asked_.push_back(ask(plan, step));
  }

  /// A failed batch is taken out before it is thrown: it is thrown once, and asked for again when wanted.
  Batch fetched(const Plan& plan, int64_t step) {
    if (!asked_.empty() && asked_.front().step != step) asked_.push_front(ask(plan, step));
    ask_ahead(plan, step);
    if (asked_.front().batch.wait_for(options_.timeout) != std::future_status::ready)
      throw SystemError(ETIMEDOUT,
                        "Loader: batch {} of epoch {} was not ready after {} s; is the dataset's storage slow? "
                        "LoaderOptions::timeout allows more",
                        step, sampler_.epoch(), options_.timeout.count());
    const auto batch = std::move(asked_.front().batch);
    asked_.pop_front();
    return batch.get();
  }

  /// Sends the next batch on its way to the device, if that is worth while and it is ready.
  void send_ahead(int64_t next) {
    if (!copy_.overlaps() || asked_.empty() || asked_.front().step != next) return;
    if (asked_.front().batch.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
    try {
      copy_.send(asked_.front().batch.get());
      asked_.pop_front();
    } catch (...) {  // stays where it is: it is thrown when its turn comes
      copy_.forget();
    }
  }

  /// What was prepared for a loop that is over.
  void forget() {
    asked_.clear();
    copy_.forget();
    if (workers_) workers_->drop_waiting();
  }

  std::shared_ptr<const Dataset> dataset_;
  LoaderOptions options_;
  RankInfo me_;
  torch::Device device_;
  DistributedBatchSampler sampler_;
  int64_t loop_ = 0;  // which one is running
  std::optional<Batch> current_;
  std::deque<Asked> asked_;           // the steps behind the one on its way, in order
  DeviceCopy copy_;                   // the sampler's next step, when it was sent ahead
  std::unique_ptr<Workers> workers_;  // null: the calling thread reads
};

Loader::Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options)
    : Loader(std::move(dataset), options, RankInfo{0, 1}) {
  warn_if_ranks_read_the_same(this->dataset()->size());
}

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

const std::shared_ptr<const Dataset>& Loader::dataset() const {
  return impl_->dataset();
}

const LoaderOptions& Loader::options() const {
  return impl_->options();
}

RankInfo Loader::me() const {
  return impl_->me();
}

std::shared_ptr<const EpochPlan> Loader::plan() const {
  return impl_->sampler().plan();
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

Loader::Iterator::Iterator(Impl& loader) : loader_(&loader), loop_(loader.loop()) {}

Loader::Iterator& Loader::Iterator::operator++() {
  if (loop_ != loader_->loop())
    throw UsageError(
        "Loader: another loop over the same Loader has begun inside of this one, which ends it; make a Loader for each "
        "loop");
  loader_->advance();
  return *this;
}

bool Loader::Iterator::operator==(std::nullptr_t) const {
  return !loader_->current();
}

}  // namespace trireme::data
