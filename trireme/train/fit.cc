// Model::fit: the loop (loop.h) with callbacks. Distribution is not seen here: the learner averages gradients, the meter
// adds up numbers over the ranks, and the loader deals out samples.
#include <signal.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/data/loader.h"
#include "trireme/io/checkpoint/checkpoint.h"
#include "trireme/parallel/same_settings.h"
#include "trireme/train/bad_total.h"
#include "trireme/train/callback_list.h"
#include "trireme/train/evaluation.h"
#include "trireme/train/learner.h"
#include "trireme/train/loop.h"
#include "trireme/train/model.h"
#include "trireme/train/pace.h"
#include "trireme/watch/report.h"

namespace trireme::train {
namespace {

void require_positive(const char* name, int64_t value) {
  if (value < 1) throw UsageError("Model::fit: {} is {}; it must be at least 1", name, value);
}

const FitOptions& checked(const FitOptions& options) {
  require_positive("batch_size", options.batch_size);
  require_positive("epochs", options.epochs);
  require_positive("eval_freq", options.eval_freq);
  require_positive("log_freq", options.log_freq);
  require_positive("save_freq", options.save_freq);
  require_positive("accumulate_grad_batches", options.accumulate_grad_batches);
  require_positive("num_iters", options.num_iters.value_or(1));
  return options;
}

std::shared_ptr<data::Loader> loader_of(const Samples& train, const FitOptions& options, const Ranks& ranks) {
  const RankInfo me = ranks.me();
  ranks.require_equal_samples("Model::fit", train.dataset()->size());
  if (!train.loader())
    return std::make_shared<data::Loader>(train.dataset(),
                                          data::LoaderOptions{.batch_size = options.batch_size,
                                                              .shuffle = options.shuffle,
                                                              .drop_last = options.drop_last,
                                                              .workers = options.num_workers},
                                          me, ranks.device());
  const RankInfo its = train.loader()->me();
  if (its.rank != me.rank || its.size != me.size)
    throw UsageError(
        "Model::fit: the loader deals out samples as rank {} of {}, but this is rank {} of {}; make it by "
        "Loader(dataset, options, init_parallel_env())",
        its.rank, its.size, me.rank, me.size);
  return train.loader();
}

/// The signals to catch: those of SIGINT and SIGTERM that the program does not handle, if something is saved.
std::vector<int> signals_of(const FitOptions& options) {
  std::vector<int> signals;
  if (options.save_dir.empty() && options.checkpoint_dir.empty()) return signals;
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction action {};
    const bool known = ::sigaction(signal, nullptr, &action) == 0 && (action.sa_flags & SA_SIGINFO) == 0;
    if (known && action.sa_handler == SIG_DFL) signals.push_back(signal);
  }
  return signals;
}

// Where a checkpoint finds a fit.
constexpr const char* kTraining = "training";
constexpr const char* kUnevaluated = "unevaluated";  // a signal came after the last batch of an epoch
constexpr const char* kStopped = "stopped";          // by a callback: there is nothing left to do

class Fit : private Training {
 public:
  Fit(Model& model, Learner& learner, const Samples& train, const FitOptions& options)
      : learner_(learner),
        options_(checked(options)),
        loader_(loader_of(train, options, learner.ranks())),
        bad_(train.dataset(), "training"),
        callbacks_(options.callbacks),
        run_(model, learner.ranks().me()),
        loop_(*this, run_, {learner.step(), learner.ranks(), Meter({"loss"}, learner.metrics())}) {
    loop_.catch_signals(signals_of(options));
    describe_run(train.dataset()->size());
    if (options.verbose > 0) callbacks_.add_default<callback::ProgressBar>();
    if (!options.save_dir.empty())
      callbacks_.add_default<callback::ModelCheckpoint>(
          callback::ModelCheckpointOptions{options.save_freq, options.save_dir});
    if (!options.checkpoint_dir.empty()) checkpoint_.emplace(options.checkpoint_dir, learner.ranks().group());
    learner.step().set_accumulate(options.accumulate_grad_batches);
  }

  Results run() {
    learner_.step().drop_gradients();
    callbacks_.call(&Callback::on_train_begin, run_);
    resume();
    if (phase_ != kStopped) loop_.run();
    run_.signal = loop_.signal();
    if (run_.signal != 0 && run_.is_main())
      log_warning("[train] epoch {}/{}, step {}/{}: ends by {}", run_.epoch + 1, run_.epochs, run_.step, run_.steps,
                  signal_name(run_.signal));
    callbacks_.call(&Callback::on_train_end, run_);
    loop_.raise_signal();
    return results_;
  }

 private:
  // Ranks that make other numbers of steps would wait for each other at the end.
  void compare_options() const {
    parallel::require_same_settings(
        "Model::fit",
        {fmt::format("batch_size = {}", loader_->options().batch_size),
         fmt::format("steps of an epoch = {}", loader_->size()), fmt::format("epochs = {}", options_.epochs),
         fmt::format("num_iters = {}", options_.num_iters.value_or(0)),
         fmt::format("accumulate_grad_batches = {}", options_.accumulate_grad_batches),
         fmt::format("evaluation = {}", static_cast<bool>(options_.eval))},
        learner_.ranks().group());
  }

  void describe_run(int64_t samples) {
    compare_options();
    run_.steps = loader_->size();
    run_.batch_size = loader_->options().batch_size;
    if (run_.steps == 0)
      throw UsageError(
          "Model::fit: {} samples on {} ranks make no batch of {}, and drop_last leaves out what is smaller; make "
          "batch_size smaller",
          samples, run_.me.size, run_.batch_size);
    run_.iterations = options_.num_iters.value_or(0);
    run_.epochs = options_.num_iters ? epochs_for(*options_.num_iters) : options_.epochs;
    run_.samples = samples;
    run_.has_eval = static_cast<bool>(options_.eval);
    run_.log_freq = options_.log_freq;
    run_.verbose = options_.verbose;
    run_.save_dir = options_.save_dir;
  }

  /// Rounded up.
  int64_t epochs_for(int64_t batches) const {
    return batches <= 0 ? 0 : (batches + loader_->size() - 1) / loader_->size();
  }

  // --- exact resume

  TrainingState state() {
    TrainingState state = learner_.step().state();
    state.loader = *loader_;
    state.extra.emplace_back(
        "fit", [this] { return fmt::format("{} {}", run_.iteration, phase_); },
        [this](const std::string& text) { load_state(text); });
    state.extra.emplace_back("callbacks", callbacks_);
    return state;
  }

  void load_state(const std::string& text) {
    std::vector<std::string> words = split(text, ' ');
    if (words.size() != 2) words = {"", ""};
    const auto batches = parse_int(words[0], 0, INT64_MAX);
    const std::string& phase = words[1];
    if (!batches || (phase != kTraining && phase != kUnevaluated && phase != kStopped))
      throw UsageError("the checkpoint has '{}' where the state of a fit should be, such as '640 training'", text);
    run_.iteration = *batches;
    phase_ = phase;
  }

  void resume() {
    if (!checkpoint_) return;
    const Restored restored = checkpoint_->restore(state());
    if (!restored) return;
    run_.epoch = restored.epoch;
    if (run_.is_main()) log_info("[train] {} batches in {} epochs are done", run_.iteration, run_.epoch);
    if (options_.num_iters) run_.epochs = run_.epoch + epochs_for(*options_.num_iters - run_.iteration);
    if (phase_ != kUnevaluated) return;
    --run_.epoch;
    evaluate_if_due();
    loop_.agree_to_stop({.stop = run_.stop});
    ++run_.epoch;
  }

  /// `cut_short`: a signal came before the evaluation.
  void save_checkpoint_if_due(bool cut_short) {
    const bool last = loop_.stopping() || run_.epoch + 1 >= run_.epochs;
    if (!checkpoint_ || (!last && (run_.epoch + 1) % options_.save_freq != 0)) return;
    const bool complete = run_.step == run_.steps;
    const bool enough = options_.num_iters && run_.iteration >= *options_.num_iters;
    const bool by_callback = loop_.stopping() && loop_.signal() == 0 && !enough;
    phase_ = by_callback ? kStopped : complete && cut_short ? kUnevaluated : kTraining;
    checkpoint_->save(state(), {.step = run_.iteration, .epoch = complete ? run_.epoch + 1 : run_.epoch});
  }

  // --- an epoch

  /// A loader of the caller's may stand within an epoch: then the first one is the rest of that.
  int64_t begin_epoch() override {
    run_.logs = {};
    run_.reader_seconds = run_.batch_seconds = 0;
    pace_.reset();
    batch_.emplace(loader_->begin());
    if (*batch_ == data::Loader::end()) batch_.emplace(loader_->begin());  // nothing was left of it
    run_.step = 0;
    run_.steps = loader_->plan()->steps();
    const int64_t left = options_.num_iters ? *options_.num_iters - run_.iteration : run_.steps;
    if (options_.num_iters) run_.epochs = run_.epoch + 1 + epochs_for(left - run_.steps);
    callbacks_.call(&Callback::on_epoch_begin, run_);
    return std::min(left, run_.steps);
  }

  // Reads here, not after the batch before: no batch is taken that is not trained.
  Meter::Batch train_batch(const BatchOptions& options) override {
    if (run_.step > 0) ++*batch_;
    pace_.read();
    run_.reader_seconds = pace_.reader_seconds();
    callbacks_.call(&Callback::on_train_batch_begin, run_);
    const ModelBatch split = learner_.split(**batch_);
    return learner_.numbers(learner_.train(split, options), split, run_.step);
  }

  // A single rank obeys a signal at once; several must first agree at a logged step.
  void end_batch() override {
    run_.logged =
        (run_.step + 1) % options_.log_freq == 0 || loop_.is_last_batch() || (run_.me.size == 1 && loop_.signalled());
    if (run_.logged) {
      run_.logs = loop_.results();
      watch::report("lr", run_.model.learning_rate());
      bad_.look(run_.me, [this](const auto& mine) { return learner_.ranks().numbers_of_all(mine); });
      if (loop_.is_last_batch() && run_.step + 1 < run_.steps) run_.stop = true;  // num_iters
      loop_.agree_to_stop({.stop = run_.stop});
    }
    pace_.done((*batch_)->data.size(0));
    run_.batch_seconds = pace_.work_seconds();
    callbacks_.call(&Callback::on_train_batch_end, run_);
  }

  void end_epoch() override {
    if (run_.step == run_.steps) ++*batch_;  // the loader now stands at the next epoch
    results_ = run_.logs = loop_.results();  // with the batches that completed the last group of an early end
    const bool cut_short = loop_.signal() != 0;
    if (!cut_short) {
      callbacks_.call(&Callback::on_epoch_end, run_);
      evaluate_if_due();
    }
    loop_.agree_to_stop({.stop = run_.stop});
    save_checkpoint_if_due(cut_short);
  }

  void evaluate_if_due() {
    const bool last = run_.epoch + 1 == run_.epochs || loop_.stopping();
    if (!options_.eval || (!last && (run_.epoch + 1) % options_.eval_freq != 0)) return;
    Run run = run_;
    run.batch_size = options_.eval_batch_size > 0 ? options_.eval_batch_size : options_.batch_size;
    const Results results = run_evaluation(learner_, options_.eval, callbacks_, run, {options_.num_workers, {}});
    for (const auto& [name, value] : results) results_.set("eval_" + name, value);
    run_.stop |= run.stop;
  }

  // Loss scaling cannot cure it: the scale comes after the loss.
  [[noreturn]] void refuse(const BadLoss& bad) const override {
    const std::filesystem::path& folder = options_.save_dir.empty() ? options_.checkpoint_dir : options_.save_dir;
    const std::string saved = folder.empty() ? "nothing was saved, since there is no save_dir"
                                             : fmt::format("what was saved in {} before stays", folder.string());
    throw UsageError(
        "Model::fit: epoch {}/{}, step {}/{}: the loss of {} is {}; training stops, {}. Try a lower learning rate "
        "(it is {}), look for broken samples, or, with mixed precision, take bf16 or level O0",
        run_.epoch + 1, run_.epochs, bad.step + 1, run_.steps, bad.ranks_text(), std::abs(bad.value), saved,
        run_.model.learning_rate());
  }

  Learner& learner_;
  FitOptions options_;
  std::shared_ptr<data::Loader> loader_;
  std::optional<data::Loader::Iterator> batch_;  // of the epoch that runs
  BadTotal bad_;
  CallbackList callbacks_;
  std::optional<Checkpoint> checkpoint_;
  Run run_;
  Loop loop_;
  Pace pace_;
  std::string phase_ = kTraining;
  Results results_;
};

}  // namespace

}  // namespace trireme::train

namespace trireme {

Results Model::fit(const train::Samples& samples, const FitOptions& options) {
  learner_->require_training("fit");
  if (!samples) throw UsageError("Model::fit: there is no dataset to train on");
  return train::Fit(*this, *learner_, samples, options).run();
}

}  // namespace trireme
