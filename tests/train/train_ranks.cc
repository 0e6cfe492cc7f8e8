// One rank of the tests of Model: trireme launch -n 2 train_ranks CASE [NUMBER|WORD…]
//
// A case prints on rank 0 what must not depend on the number of ranks; train_test.py compares.
#include <fmt/ranges.h>
#include <signal.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <cmath>
#include <iostream>
#include <map>
#include <mutex>
#include <numeric>
#include <set>

#include "trireme/comm/collectives.h"
#include "trireme/core/error.h"
#include "trireme/core/parallel_env.h"
#include "trireme/data/loader.h"
#include "trireme/data/tensor_dataset.h"
#include "trireme/io/safetensors.h"
#include "trireme/optim/optimizers.h"
#include "trireme/parallel/data_parallel.h"
#include "trireme/parallel/init.h"
#include "trireme/train/model.h"
#include "trireme/train/step.h"
#include "trireme/watch/report.h"

namespace trireme::test {
namespace {

using Words = std::vector<std::string>;

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return last(torch::tanh(first(x))); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(4, 8));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(8, 3));
};
TORCH_MODULE(Net);

// Gives the probability that a number is positive.
struct JudgeImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return torch::sigmoid(layer(x)); }
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(4, 1));
};
TORCH_MODULE(Judge);

int rank() {
  return is_initialized() ? Group::world().rank() : 0;
}

void say(const std::string& line) {
  if (rank() == 0) std::cout << line << "\n" << std::flush;
}

// The bits of each number.
void say(const Results& results) {
  for (const auto& [name, value] : results) say(fmt::format("{} {:a}", name, value));
}

std::vector<double> doubles(const torch::Tensor& tensor) {
  const torch::Tensor flat = tensor.detach().to(torch::kCPU, torch::kDouble).reshape({-1}).contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

void say_parameters(const Model& model) {
  std::vector<double> all;
  for (const torch::Tensor& parameter : model.parameters()) {
    const std::vector<double> one = doubles(parameter);
    all.insert(all.end(), one.begin(), one.end());
  }
  for (const std::string& one : all_gather_object(fmt::format("{}", fmt::join(all, " "))))
    if (one != fmt::format("{}", fmt::join(all, " "))) throw std::runtime_error("the ranks' parameters differ");
  say(fmt::format("parameters {}", fmt::join(all, " ")));
}

data::TensorDataset points(int64_t count) {
  torch::manual_seed(3);
  const torch::Tensor x = torch::randn({count, 4});
  return {x, x.narrow(1, 0, 3).argmax(1)};
}

// Starts with other weights on every rank; the Model makes them rank 0's.
Net net() {
  torch::manual_seed(7 + ParallelEnv::from_environment().rank);
  return Net();
}

PrepareOptions classification(const AmpOptions& amp = {}) {
  return {.optimizer = [](auto parameters) { return optim::Momentum(parameters, {.lr = 0.05}); },
          .loss = torch::nn::CrossEntropyLoss(),
          .metrics = {metric::Accuracy()},
          .amp = amp};
}

Model classifier(const AmpOptions& amp = {}) {
  Model model(net());
  model.prepare(classification(amp));
  return model;
}

using Sharding = std::optional<ShardedOptions>;

PrepareOptions sharded(const Sharding& shard, const AmpOptions& amp = {}) {
  PrepareOptions options = classification(amp);
  options.clip_norm = 0.5;
  options.ema_decay = 0.9;
  options.shard = shard;
  return options;
}

const std::map<std::string, Sharding> kLayouts = {{"none", std::nullopt},
                                                  {"optimizer", ShardedOptions{.shard = Shard::optimizer}},
                                                  {"gradients", ShardedOptions{.shard = Shard::gradients}},
                                                  {"parameters", ShardedOptions{.shard = Shard::parameters}}};

// Points of which every tenth cannot be read. A process knows of those that it has met.
class Holes : public data::RandomDataset {
 public:
  using RandomDataset::batch;
  using RandomDataset::get;
  Holes(int64_t count, int64_t allowed) : points_(points(count)), allowed_(allowed) {}
  int64_t size() const override { return points_.size(); }
  data::Sample get(int64_t index, uint64_t /*draw*/) const override { return points_.get(is_bad(index) ? 1 : index); }
  data::Batch batch(const data::Pick& pick) const override {
    data::Pick left = pick;
    if (pick.leave_out_bad) left.indices.clear();
    for (const int64_t index : pick.indices)
      if (!is_bad(index) && pick.leave_out_bad) left.indices.push_back(index);
    return left.indices.empty() ? data::Batch{torch::empty({0}), torch::empty({0})} : RandomDataset::batch(left);
  }
  data::BadSamples bad() const override {
    const std::lock_guard lock(met_->mutex);
    return {size(), allowed_, {met_->numbers.begin(), met_->numbers.end()}, {}};
  }

 private:
  struct Met {
    std::mutex mutex;
    std::set<int64_t> numbers;
  };
  bool is_bad(int64_t index) const {
    if (index % 10 != 0) return false;
    const std::lock_guard lock(met_->mutex);
    met_->numbers.insert(index);
    return true;
  }

  data::TensorDataset points_;
  int64_t allowed_;
  std::shared_ptr<Met> met_ = std::make_shared<Met>();
};

// SAMPLES BATCH: the bad ones are left out.
void holes(const Words& words) {
  const Holes samples(std::stoll(words[0]), 100);
  say(classifier().evaluate(samples, {.batch_size = std::stoll(words[1]), .verbose = 0}));
}

// 12 are bad, 6 for each of two ranks, and 10 allowed.
void too_many_holes(const Words&) {
  try {
    classifier().fit(Holes(120, 10), {.batch_size = 5, .verbose = 0});
  } catch (const UsageError& error) {
    std::cout << fmt::format("rank {} stops: {}\n", rank(), error.what()) << std::flush;
  }
}

// The same twice: by a loader of the caller's, and by the dataset.
void loader(const Words&) {
  const World world = init_parallel_env();
  Model model = classifier();
  data::Loader train(points(60), {.batch_size = 6, .shuffle = true}, world);
  model.fit(train, {.epochs = 2, .verbose = 0});
  say_parameters(model);
  Model other = classifier();
  other.fit(points(60), {.batch_size = 6, .epochs = 2, .verbose = 0});
  say_parameters(other);
}

// FOLDER: a signal comes to the last rank in step 7.
void interrupt(const Words& words) {
  struct Interrupter : Callback {
    void on_train_batch_end(Run& run) override {
      if (run.me.rank == run.me.size - 1 && run.step == 6) ::raise(SIGTERM);
    }
    void on_train_end(Run& run) override {
      std::cout << fmt::format("rank {} saves after {} steps\n", run.me.rank, run.iteration) << std::flush;
    }
  };
  classifier().fit(points(200),
                   {.batch_size = 2, .epochs = 3, .save_dir = words[0], .verbose = 0, .callbacks = {Interrupter()}});
}

// FOLDER [ITERATION [LAYOUT]]: a fit with exact resume; in this iteration (-1: none) a signal comes to the last rank.
void resume(const Words& words) {
  struct Interrupter : Callback {
    explicit Interrupter(int64_t iteration) : at(iteration) {}
    void on_train_batch_end(Run& run) override {
      if (run.me.rank == run.me.size - 1 && run.iteration == at) ::raise(SIGTERM);
    }
    int64_t at;
  };
  Model model = classifier();
  if (words.size() > 2) model.prepare(sharded(kLayouts.at(words[2])));
  model.fit(points(200), {.batch_size = 2,
                          .epochs = 2,
                          .checkpoint_dir = words[0],
                          .verbose = 0,
                          .callbacks = {Interrupter(words.size() > 1 ? std::stoll(words[1]) : -1)},
                          .accumulate_grad_batches = 3});
  if (words.size() > 2) model.prepare(classification());  // whole again
  say_parameters(model);
}

// Two inputs, two labels and two outputs, by Model and by a loop over Step.
struct PairNetImpl : torch::nn::Module {
  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& left, const torch::Tensor& right) {
    const torch::Tensor hidden = torch::tanh(first(torch::cat({left, right}, 1)));
    return {kind(hidden), sum(hidden)};
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(4, 8));
  torch::nn::Linear kind = register_module("kind", torch::nn::Linear(8, 2));
  torch::nn::Linear sum = register_module("sum", torch::nn::Linear(8, 1));
};
TORCH_MODULE(PairNet);

torch::Tensor pair_loss(const train::Tensors& outputs, const train::Tensors& labels) {
  return torch::cross_entropy_loss(outputs[0], labels[0]) + torch::mse_loss(outputs[1], labels[1]);
}

// SAMPLES BATCH
void lists(const Words& words) {
  const World world = init_parallel_env();
  torch::manual_seed(3);
  const int64_t count = std::stoll(words[0]), batch_size = std::stoll(words[1]);
  const torch::Tensor left = torch::randn({count, 2}), right = torch::randn({count, 2});
  const data::TensorDataset samples(data::Batch({{"left", left},
                                                 {"right", right},
                                                 {"kind", (left > right).all(1).to(torch::kLong)},
                                                 {"sum", (left + right).sum(1, true)}}));
  const auto fresh = [&] {
    torch::manual_seed(7 + world.rank());
    return PairNet();
  };
  Model model(fresh());
  model.prepare({.optimizer = [](auto parameters) { return optim::Momentum(parameters, {.lr = 0.05}); },
                 .loss = pair_loss,
                 .metrics = {{metric::Accuracy(), {.output = 0, .label = 0}}}});
  model.fit(samples, {.batch_size = batch_size, .epochs = 2, .verbose = 0});
  say_parameters(model);

  DataParallel wrapped(fresh(), world);
  optim::Momentum optimizer(wrapped->parameters(), {.lr = 0.05});
  train::Step step(wrapped, optimizer, {.loss = pair_loss});
  data::Loader loader(samples, {.batch_size = batch_size, .shuffle = true}, world);
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const data::Batch& batch : loader) step({batch["left"], batch["right"]}, {batch["kind"], batch["sum"]});
  say_parameters(Model(wrapped.module()));

  say(model.evaluate(samples, {.batch_size = batch_size, .verbose = 0}));
  for (const torch::Tensor& output : model.predict_outputs(samples, {.batch_size = batch_size, .verbose = 0}))
    for (const std::string& one : all_gather_object(
             fmt::format("{} {:a}", fmt::join(output.sizes(), " x "), output.to(torch::kDouble).sum().item<double>())))
      say(one);
}

// Each rank has batches of other sizes; the ranks' weights stay equal.
void step(const Words&) {
  const World world = init_parallel_env();
  DataParallel model(net(), world);
  optim::Momentum optimizer(model->parameters(), {.lr = 0.05});
  train::Step step(model, optimizer, {.loss = torch::nn::CrossEntropyLoss(), .clip_norm = 0.1, .accumulate = 3});
  const data::TensorDataset samples = points(100);
  for (int64_t i = 0; i < 7; ++i) {
    std::vector<int64_t> indices(static_cast<size_t>(1 + (i * (world.rank() + 2)) % 5));
    std::iota(indices.begin(), indices.end(), 10 * i);
    const data::Batch batch = samples.batch(indices);
    step(batch.data, batch.target, i == 6 ? train::BatchOptions{.update = true} : train::BatchOptions{});
  }
  say_parameters(Model(model.module()));
}

// SAMPLES BATCH ACCUMULATE ITERATIONS (0: two epochs)
void fit(const Words& words) {
  Model model = classifier();
  FitOptions options{.eval = points(50), .batch_size = std::stoll(words[1]), .epochs = 2, .verbose = 0};
  options.accumulate_grad_batches = std::stoll(words[2]);
  if (words[3] != "0") options.num_iters = std::stoll(words[3]);
  const Results results = model.fit(points(std::stoll(words[0])), options);
  for (const auto& [name, value] : results) say(fmt::format("{} {}", name, value));
  say_parameters(model);
}

// SAMPLES BATCH
void evaluate(const Words& words) {
  Model model = classifier();
  const int64_t batch_size = std::stoll(words[1]);
  say(model.evaluate(points(std::stoll(words[0])), {.batch_size = batch_size, .verbose = 0}));
  torch::manual_seed(11);
  Model judge((Judge()));
  judge.prepare({.loss = torch::nn::BCELoss(), .metrics = {metric::Precision(), metric::Recall(), metric::Auc()}});
  const data::TensorDataset samples = points(std::stoll(words[0]));
  std::vector<int64_t> all(static_cast<size_t>(samples.size()));
  std::iota(all.begin(), all.end(), 0);
  const torch::Tensor x = samples.batch(all).data;
  const data::TensorDataset signs(x, (x.select(1, 0) > 0).to(torch::kFloat).unsqueeze(1));
  say(judge.evaluate(signs, {.batch_size = batch_size, .verbose = 0}));
}

// SAMPLES BATCH: every rank has every output, at its place.
void predict(const Words& words) {
  Model model = classifier();
  const data::TensorDataset samples = points(std::stoll(words[0]));
  const torch::Tensor outputs = model.predict(samples, {.batch_size = std::stoll(words[1]), .verbose = 0});
  for (int64_t i = 0; i < samples.size(); ++i)
    if (!model.predict_batch(samples.get(i).data.unsqueeze(0))[0].allclose(outputs[i], 1e-5, 1e-6))
      throw std::runtime_error(fmt::format("output {} is another sample's", i));
  const std::string shape = fmt::format("{}", fmt::join(outputs.sizes(), " x "));
  for (const std::string& one : all_gather_object(shape)) say(one);
}

// FOLDER: sample 25 of 40 is broken; in batches of 4 on two ranks it is rank 0's fourth.
void broken(const Words& words) {
  Model model = classifier();
  torch::Tensor x = torch::randn({40, 4});
  const torch::Tensor y = torch::zeros({40}, torch::kLong);
  const FitOptions options{
      .batch_size = 4, .epochs = 2, .log_freq = 2, .save_dir = words[0], .verbose = 0, .shuffle = false};
  model.fit(data::TensorDataset(x, y), options);
  x[25] = std::nan("");
  try {
    model.fit(data::TensorDataset(x, y), options);
  } catch (const UsageError& error) {
    std::cerr << fmt::format("rank {} stops: {}", rank(), error.what()) << std::endl;
    model.load(std::filesystem::path(words[0]) / "final");
    const Results results = model.eval_batch(torch::zeros({1, 4}), torch::zeros({1}, torch::kLong));
    say(std::isfinite(results.at("loss")) ? "whole" : "lost");
  }
}

// Only rank 1 wishes to stop: all do, at the same place.
void stop(const Words&) {
  struct Stopper : Callback {
    void on_train_batch_end(Run& run) override {
      run.stop = run.stop || (run.me.rank == run.me.size - 1 && run.step == 3);
    }
    void on_train_end(Run& run) override {
      std::cout << fmt::format("rank {} ended at {}\n", run.me.rank, run.iteration) << std::flush;
    }
  };
  classifier().fit(points(100), {.batch_size = 2, .epochs = 3, .log_freq = 6, .verbose = 0, .callbacks = {Stopper()}});
}

// FOLDER
void save(const Words& words) {
  const std::filesystem::path folder = words[0];
  const FitOptions options{.batch_size = 5, .verbose = 0};
  Model unbroken = classifier();
  unbroken.fit(points(40), options);
  unbroken.save(folder / "half");
  unbroken.fit(points(40), options);
  say_parameters(unbroken);
  Model loaded = classifier();
  loaded.load(folder / "half");
  loaded.fit(points(40), options);
  say_parameters(loaded);
  try {
    loaded.save(folder / "half.safetensors" / "below");  // a file is no folder
  } catch (const std::exception& error) {
    std::cout << fmt::format("rank {} cannot save: {}\n", rank(), error.what()) << std::flush;
  }
}

// The numbers of the files that Model::save() wrote: "NAME.weights …", "NAME.optimizer …", "NAME.ema …".
void say_files(const std::string& name, const std::filesystem::path& path) {
  if (rank() != 0) return;
  for (const char* kind : {"", ".optimizer", ".ema"}) {
    std::string line = fmt::format("{}{}", name, *kind == '\0' ? ".weights" : kind);
    for (const auto& item : io::load_safetensors(path.string() + kind + ".safetensors"))
      for (const double number : doubles(item.value())) line += fmt::format(" {}", number);
    say(line);
  }
}

// One training, as long as the others of the case: what it evaluates and predicts, and its files.
void say_training(const std::string& name, Model& model, const std::filesystem::path& file) {
  const FitOptions options{
      .eval = points(50), .batch_size = 3, .epochs = 2, .verbose = 0, .accumulate_grad_batches = 2};
  for (const auto& [key, value] : model.fit(points(60), options)) say(fmt::format("{}.{} {}", name, key, value));
  const torch::Tensor outputs = model.predict(points(11), {.batch_size = 4, .verbose = 0});
  if (!model.predict_batch(points(11).get(7).data.unsqueeze(0))[0].allclose(outputs[7], 1e-5, 1e-6))
    throw std::runtime_error("predict() and predict_batch() differ");
  say(fmt::format("{}.outputs {}", name, fmt::join(doubles(outputs), " ")));
  model.save(file);
  say_files(name, file);
}

// FOLDER: the same training in every layout; then each file goes on in another layout, and a model goes on in another
// one by prepare().
void shard(const Words& words) {
  const std::filesystem::path folder = words[0];
  const std::map<std::string, std::string> before = {
      {"none", "parameters"}, {"optimizer", "none"}, {"gradients", "optimizer"}, {"parameters", "gradients"}};
  const auto prepared = [](const std::string& layout) {
    Model model(net());
    model.prepare(sharded(kLayouts.at(layout)));
    return model;
  };
  for (const auto& [layout, options] : kLayouts) {
    Model model = prepared(layout);
    say_training("fit." + layout, model, folder / layout);
  }
  for (const auto& [layout, options] : kLayouts) {
    Model loaded = prepared(layout);
    loaded.load(folder / before.at(layout));
    say_training("loaded." + layout, loaded, folder / "loaded");
    Model changed = prepared(before.at(layout));
    changed.fit(points(60), {.batch_size = 6, .verbose = 0});
    changed.prepare(sharded(options));
    say_training("prepared." + layout, changed, folder / "prepared");
  }
}

// FOLDER: level O2, with masters of low pieces and with pieces of all digits; ends in float, for inference.
void shard_low(const Words& words) {
  const std::filesystem::path folder = words[0];
  const AmpOptions amp{.level = AmpLevel::O2, .dtype = torch::kBFloat16};
  const std::vector<std::pair<std::string, Sharding>> layouts = {
      {"none", std::nullopt},
      {"masters", ShardedOptions{.shard = Shard::parameters}},
      {"pieces", ShardedOptions{.shard = Shard::parameters, .param_dtype = torch::kBFloat16}}};
  for (const auto& [name, layout] : layouts) {
    Model model(net());
    model.prepare(sharded(layout, amp));
    say_training("fit." + name, model, folder / name);
  }
  for (size_t i = 0; i < layouts.size(); ++i) {
    Model model(net());
    model.prepare(sharded(layouts[i].second, amp));
    model.load(folder / layouts[(i + 2) % layouts.size()].first);
    model.save(folder / "again");
    say_files("loaded." + layouts[i].first, folder / "again");
    model.prepare(sharded({}));
    model.save(folder / "again");
    say_files("raised." + layouts[i].first, folder / "again");
  }
}

// FOLDER: a sharded model is exported as it is evaluated, with whole averages, whatever is split.
void shard_export(const Words& words) {
  for (const Shard shard : {Shard::optimizer, Shard::gradients, Shard::parameters}) {
    torch::manual_seed(7);
    Model model(torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(12, 3)));
    model.prepare(sharded(ShardedOptions{.shard = shard}));
    const torch::Tensor images = torch::randn({40, 3, 2, 2});
    model.fit(data::TensorDataset(images, images.flatten(1).narrow(1, 0, 3).argmax(1)),
              {.batch_size = 5, .verbose = 0});
    model.save(words[0],
               {.training = false,
                .inference = bundle::Description{
                    .model_name = "", .input = {.channels = 3, .height = 2, .width = 2}, .labels = {"a", "b", "c"}}});
    torch::jit::Module loaded = torch::jit::load((std::filesystem::path(words[0]) / bundle::kTorchFile).string());
    const torch::Tensor exported = loaded.forward({images}).toTensor();
    say(exported.allclose(model.predict_batch(images).softmax(1), 1e-4, 1e-6) ? "equal" : "different");
  }
}

// FILE: what is refused, by every rank.
void shard_refusals(const Words& words) {
  const auto says = [&](const PrepareOptions& options) {
    try {
      Model model(net());
      model.prepare(options);
      model.predict_batch(torch::zeros({1, 4}));
    } catch (const UsageError& error) {
      std::cout << fmt::format("rank {}: {}\n", rank(), error.what()) << std::flush;
    }
  };
  Net mine = net();
  PrepareOptions ready = sharded(ShardedOptions{});
  ready.optimizer = std::make_shared<torch::optim::SGD>(mine->parameters(), 0.1);
  says(ready);
  says(sharded(ShardedOptions{.param_dtype = torch::kBFloat16}));
  says(sharded(ParallelEnv::from_environment().rank == 1 ? Sharding{} : ShardedOptions{.shard = Shard::gradients}));
  Model model(net());
  model.prepare(sharded(ShardedOptions{.shard = Shard::parameters}));
  model.save(words[0]);
  try {
    model.load(ParallelEnv::from_environment().rank == 1 ? "no such file" : words[0]);
  } catch (const Error& error) {
    std::cout << fmt::format("rank {}: {}\n", rank(), error.what()) << std::flush;
  }
  model.fit(points(20), {.batch_size = 5, .verbose = 0});
  say("goes on");
}

// LEVEL TYPE
void amp(const Words& words) {
  const std::map<std::string, AmpLevel> levels = {{"O0", AmpLevel::O0}, {"O1", AmpLevel::O1}, {"O2", AmpLevel::O2}};
  Model model =
      classifier({.level = levels.at(words[0]), .dtype = words[1] == "fp16" ? torch::kHalf : torch::kBFloat16});
  const Results before = model.evaluate(points(60), {.batch_size = 10, .verbose = 0});
  const Results after = model.fit(points(60), {.eval = points(60), .batch_size = 10, .epochs = 12, .verbose = 0});
  say(after.at("eval_loss") < before.at("loss") / 2 ? "learnt" : "learnt nothing");
  say(c10::toString(model.parameters()[0].scalar_type()));
  model.save(words[2]);
  Model full(net());
  full.load(words[2]);
  say(fmt::format("difference {}", std::abs(full.predict(points(60), {.verbose = 0}).sum().item<double>() -
                                            model.predict(points(60), {.verbose = 0}).sum().item<double>())));
  say_parameters(model);
}

// A net that is not trained has rank 0's weights too.
void frozen(const Words&) {
  Net fixed = net();
  for (torch::Tensor parameter : fixed->parameters()) parameter.requires_grad_(false);
  Model model(fixed);
  const double output = model.predict(points(9), {.batch_size = 2, .verbose = 0}).sum().item<double>();
  say(fmt::format("outputs {:.6f}", output));
  say_parameters(model);
}

void random(const Words&) {
  Model model = classifier();
  model.predict_batch(torch::zeros({1, 4}));
  const std::vector<std::string> drawn = all_gather_object(fmt::format("{}", torch::rand({}).item<double>()));
  say(std::set<std::string>(drawn.begin(), drawn.end()).size() == drawn.size() ? "different" : "equal");
}

// SAMPLES of rank 1; rank 0 has 60
void uneven(const Words& words) {
  Model model = classifier();
  const data::TensorDataset mine = points(ParallelEnv::from_environment().rank == 1 ? std::stoi(words[0]) : 60);
  const auto says = [&](const char* what, const auto& call) {
    try {
      call();
    } catch (const UsageError& error) {
      std::cerr << fmt::format("rank {}, {}: {}", rank(), what, error.what()) << std::endl;
    }
  };
  says("fit", [&] { model.fit(mine, {.batch_size = 10, .verbose = 0}); });
  says("evaluate", [&] { model.evaluate(mine, {.verbose = 0}); });
  says("predict", [&] { model.predict(mine, {.verbose = 0}); });
}

// Rank 1 gives other options than rank 0.
void other_options(const Words&) {
  const bool other = ParallelEnv::from_environment().rank == 1;
  const std::vector<FitOptions> all = {{.batch_size = other ? 6 : 10, .verbose = 0},
                                       {.batch_size = 10, .epochs = other ? 3 : 2, .verbose = 0},
                                       {.batch_size = 10, .verbose = 0, .accumulate_grad_batches = other ? 2 : 1}};
  for (const FitOptions& options : all) try {
      classifier().fit(points(60), options);
    } catch (const UsageError& error) {
      std::cerr << fmt::format("rank {}: {}", rank(), error.what()) << std::endl;
    }
}

// VERBOSE
void progress(const Words& words) {
  classifier().fit(points(300), {.eval = points(20), .batch_size = 10, .epochs = 2, .verbose = std::stoi(words[0])});
}

// STEPS: a loop without Model and Step, whose steps and phases DataParallel records. Its 2 MB of gradients travel in
// several buckets.
void own_loop(const Words& words) {
  const World world = init_parallel_env();
  using torch::nn::Linear;
  DataParallel model(torch::nn::Sequential(Linear(4, 512), Linear(512, 512), Linear(512, 512), Linear(512, 3)), world,
                     {.comm_buffer_size = 1});
  torch::optim::SGD sgd(model->parameters(), 0.01);
  data::Loader loader(points(std::stoll(words[0]) * 8 * world.size()), {.batch_size = 8}, world);
  for (const auto& [x, y] : loader) {
    const torch::Tensor loss = torch::cross_entropy_loss(model(x), y);
    loss.backward();
    {
      const watch::PhaseScope phase(watch::Phase::optimizer);
      sgd.step();
      sgd.zero_grad();
    }
    watch::report("loss", loss.item<double>());
  }
}

const std::map<std::string, void (*)(const Words&)> kCases = {
    {"amp", amp},
    {"broken", broken},
    {"evaluate", evaluate},
    {"fit", fit},
    {"frozen", frozen},
    {"holes", holes},
    {"interrupt", interrupt},
    {"lists", lists},
    {"loader", loader},
    {"own_loop", own_loop},
    {"predict", predict},
    {"progress", progress},
    {"random", random},
    {"resume", resume},
    {"save", save},
    {"shard", shard},
    {"shard_export", shard_export},
    {"shard_low", shard_low},
    {"shard_refusals", shard_refusals},
    {"step", step},
    {"stop", stop},
    {"too_many_holes", too_many_holes},
    {"uneven", uneven},
    {"other_options", other_options},
};

int run(const Words& words) {
  if (words.empty() || !kCases.contains(words[0])) throw UsageError("train_ranks: no such case");
  kCases.at(words[0])(Words(words.begin() + 1, words.end()));
  return 0;
}

}  // namespace
}  // namespace trireme::test

int main(int argc, char** argv) try {
  return trireme::test::run({argv + 1, argv + argc});
} catch (const trireme::Error& error) {
  std::cerr << error.what() << std::endl;
  return error.exit_code();
}
