#include "trireme/tipc/plan.h"

#include <algorithm>
#include <set>

#include "trireme/core/error.h"
#include "trireme/tipc/commands.h"
#include "trireme/tipc/own_programs.h"

namespace trireme::tipc {
namespace {

using std::filesystem::path;

constexpr const char* kNotFirst = "trainer 0 saves";
constexpr const char* kMeasuredElsewhere = "the first machine measures one device";
constexpr const char* kInferLog = "cpp_infer_";

/// The folder may be one that all machines see.
std::string log_ending(int node) {
  return node == 0 ? ".log" : fmt::format(".node{}.log", node);
}

/// Adds the steps of one combination after another.
class Planner {
 public:
  Planner(const Case& test, Mode mode, const PlanOptions& options)
      : test_(test), mode_(mode), folder_(output_folder(test, mode, options)), options_(options) {}

  void trainings() {
    for (size_t i = 0; i < test_.placements.size(); ++i)
      for (const std::string& autocast : test_.autocasts)
        for (const Trainer& trainer : test_.trainers) training(i, autocast, trainer);
  }

  void given_models() {
    for (size_t i = 0; i < test_.given_models.size(); ++i) {
      node_ = 0;
      group_ = test_.given_models.size() == 1 ? "infer" : fmt::format("infer_{}", i + 1);
      given_model(test_.given_models[i]);
    }
  }

  void benchmarks() {
    if (!test_.benchmark)
      throw UsageError("{}: benchmark_train needs a section train_benchmark_params (batch_size, fp_items, epoch)",
                       test_.model_name);
    check_benchmark(test_);
    std::set<bool> counted;  // the kinds of device, CPU or not, with one alone
    for (size_t i = 0; i < test_.placements.size(); ++i) {
      benchmarks_on(test_.placements[i], node_of(i));
      if (test_.placements[i].devices() == 1) counted.insert(test_.placements[i].on_cpu());
    }
    for (size_t i = 0; i < test_.placements.size(); ++i)
      if (counted.insert(test_.placements[i].on_cpu()).second) benchmark_single(i);
  }

  std::vector<Step> take() { return std::move(steps_); }

 private:
  int node_of(size_t placement) const { return placement < options_.nodes.size() ? options_.nodes[placement] : 0; }

  /// With _2 and so on from the second of that name on: names do not tell hosts, which two placements may differ by.
  std::string untaken(const std::string& name) {
    std::string own = name;
    for (int next = 2; !groups_.insert(own).second; ++next) own = fmt::format("{}_{}", name, next);
    return own;
  }

  void benchmarks_on(const Placement& placement, int node) {
    node_ = node;
    for (const std::string& fp_item : test_.benchmark->fp_items)
      for (const std::string& batch_size : test_.benchmark->batch_sizes) benchmark(placement, fp_item, batch_size);
  }

  /// What speed-ups are counted from: on the first machine only, since all may write into one folder, and last, so that
  /// no other machine waits for it.
  void benchmark_single(size_t place) {
    const size_t first = steps_.size();
    benchmarks_on(single(test_.placements[place]), node_of(place));
    for (size_t i = first; i < steps_.size() && node_ != 0; ++i) steps_[i].skip = kMeasuredElsewhere;
  }

  void training(size_t place, const std::string& autocast, const Trainer& trainer) {
    const Placement& placement = test_.placements[place];
    node_ = node_of(place);
    group_ = untaken(group_name(test_, placement, autocast, trainer));
    const Weights weights{folder(), weights_name(trainer.command, test_.train_model_name)};
    const size_t train = add_train(train_command(test_, mode_, placement, autocast, trainer, folder()), placement);
    if (node_ == 0) steps_[train].weights = weights;
    add_eval(train, placement, weights);
    add_export_and_infer(train, trainer, weights, placement);
  }

  void given_model(const GivenModel& model) {
    std::optional<size_t> exported;
    if (!model.export_command.empty()) exported = add_export(model.export_command, model.path);
    add_infers(exported, exported ? inference_folder() : path(model.path), test_.infer_words, some_gpu());
  }

  void benchmark(const Placement& placement, const std::string& fp_item, const std::string& batch_size) {
    group_ = untaken(fmt::format("bs{}_{}_DP_N{}C{}", batch_size, fp_item, placement.nodes(), placement.processes));
    const size_t step = add_train(benchmark_command(test_, placement, fp_item, batch_size, folder()), placement);
    // A device of a CPU is a process with one thread; else one process would use the cores of all.
    if (placement.on_cpu()) steps_[step].environment.emplace_back("OMP_NUM_THREADS", "1");
    for (const auto& variable : test_.benchmark->environment) set_variable(steps_[step], variable);
    steps_[step].measured =
        Measured{batch_size, fp_item, placement.nodes(), placement.devices(), placement.on_cpu() ? "CPU" : "GPU"};
  }

  // --- steps

  Step& add(StepKind kind, const std::string& name, Words command, const std::string& log) {
    Step step{.kind = kind, .group = group_, .name = name, .command = std::move(command)};
    step.log = folder() / (log + log_ending(node_));
    step.node = node_;
    steps_.push_back(std::move(step));
    return steps_.back();
  }

  static void set_variable(Step& step, const std::pair<std::string, std::string>& variable) {
    std::erase_if(step.environment, [&](const auto& old) { return old.first == variable.first; });
    step.environment.push_back(variable);
  }

  /// What a single process sees, as `trireme launch` does it for trainings.
  static void show_gpu(Step& step, std::optional<int> gpu) {
    step.environment.emplace_back("CUDA_VISIBLE_DEVICES", std::to_string(gpu.value_or(-1)));
  }

  size_t add_train(Words command, const Placement& placement) {
    Step& step = add(StepKind::train, "train", std::move(command), "train");
    if (placement.on_cpu()) show_gpu(step, std::nullopt);
    return steps_.size() - 1;
  }

  void add_eval(size_t train, const Placement& placement, const Weights& weights) {
    if (test_.eval.empty()) return;
    Step& step = add(StepKind::eval, "eval", eval_command(test_, placement, weights.path()), "eval");
    use_weights(step, train, weights);
    show_gpu(step, placement.first_gpu());
  }

  void add_export_and_infer(size_t train, const Trainer& trainer, const Weights& weights, const Placement& placement) {
    if (trainer.export_command.empty()) return;
    const size_t exported = add_export(trainer.export_command, weights.path());
    use_weights(steps_[exported], train, weights);
    add_infers(exported, inference_folder(), test_.train_infer_words, placement.first_gpu());
    for (size_t i = exported; i < steps_.size() && !trainer.no_export.empty(); ++i) steps_[i].skip = trainer.no_export;
  }

  size_t add_export(const Words& command, const std::string& weights) {
    Step& step =
        add(StepKind::export_model, "export", export_words(test_, command, weights, inference_folder()), "export");
    if (node_ == 0) step.outdated = {inference_folder()};
    return steps_.size() - 1;
  }

  /// The first that gpu_list names.
  std::optional<int> some_gpu() const {
    for (const Placement& placement : test_.placements)
      if (!placement.on_cpu()) return placement.first_gpu();
    return std::nullopt;
  }

  void add_infers(std::optional<size_t> after, const path& model, const Words& more, std::optional<int> gpu) {
    if (test_.inference.empty()) return;
    for (const InferVariant& variant : test_.infer_variants) {
      Step& step = add(StepKind::infer, "infer " + variant.name, infer_words(test_, variant, model, more),
                       kInferLog + variant.name);
      step.after = after;
      if (node_ != 0) step.skip = kNotFirst;
      // Where nothing was trained on a GPU, none is asked for; a GPU that is missing otherwise is a failure.
      if (step.skip.empty() && variant.gpu && !gpu) step.skip = "gpu_list has the CPU only";
      if (!variant.gpu || gpu) show_gpu(step, variant.gpu ? gpu : std::nullopt);
    }
  }

  void use_weights(Step& step, size_t after, const Weights& weights) const {
    step.after = after;
    step.weights = weights;
    if (node_ != 0) step.skip = kNotFirst;
  }

  // --- places

  path folder() const { return folder_ / group_; }
  path inference_folder() const { return folder() / "inference"; }

  const Case& test_;
  const Mode mode_;
  const path folder_;
  const PlanOptions& options_;
  int node_ = 0;
  std::string group_;
  std::set<std::string> groups_;
  std::vector<Step> steps_;
};

}  // namespace

const char* to_string(StepKind kind) {
  constexpr const char* kNames[] = {"train", "eval", "export", "infer"};
  return kNames[static_cast<size_t>(kind)];
}

std::string shown(const Step& step) {
  std::string text;
  for (const auto& [name, value] : step.environment) text += fmt::format("{}={} ", name, show_words({value}));
  return text + show_words(step.command);
}

bool is_infer_log(std::string_view file_name, int node) {
  if (!file_name.starts_with(kInferLog) || !file_name.ends_with(log_ending(node))) return false;
  const std::string_view stem = file_name.substr(0, file_name.size() - log_ending(node).size());
  const std::string_view last = stem.substr(std::min(stem.rfind('.'), stem.size()));  // ".node1" of another machine
  return !last.starts_with(".node");
}

path output_folder(const Case& test, Mode mode, const PlanOptions& options) {
  return path(options.output) / test.model_name / to_string(mode);
}

std::vector<Step> make_plan(const Case& test, Mode mode, const PlanOptions& options) {
  Planner planner(test, mode, options);
  if (mode == Mode::benchmark_train)
    planner.benchmarks();
  else if (mode == Mode::whole_infer)
    planner.given_models();
  else
    planner.trainings();
  std::vector<Step> steps = planner.take();
  if (steps.empty())
    throw UsageError("{}: nothing to run in the mode {}; are infer_model and inference null?", test.model_name,
                     to_string(mode));
  return steps;
}

}  // namespace trireme::tipc
