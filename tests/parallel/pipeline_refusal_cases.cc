// What a pipeline refuses, and how it ends when a rank fails.
#include "pipeline_training.h"

namespace trireme::test {
namespace {

void pipeline_bad_options(const World& world) {
  const Mesh mesh(world, {{"pipe", -1}});
  const std::string place = fmt::format("rank {} (pipe {} of {})", world.rank(), world.rank(), world.size());
  const auto refused = [&](const std::vector<PipelineLayer>& layers, const PipelineOptions& options,
                           std::initializer_list<std::string> words, Where where = Where::current()) {
    const auto make = [&] { Pipeline(layers, mesh["pipe"], options); };
    require_error(make, "UsageError", words, where);
    const bool names_others = error_of(make).find(", but rank ") != std::string::npos || options.cut == Cut::time;
    if (!names_others) require_error(make, "UsageError", {place}, where);
  };
  refused(mlp(), {.micro_batches = 0}, {"micro_batches = 0", "at least 1"});
  refused(mlp(), {.chunks = 2}, {"chunks = 2", "interleaved"});
  refused(mlp(), {.schedule = Schedule::interleaved, .chunks = 14}, {"13 layers", "stages"});
  refused({}, {}, {"0 layers"});
  refused({linear_layer("a.b", 6, 6)}, {.chunks = 1}, {world.size() == 1 ? "without dots" : "fewer than"});
  std::vector<PipelineLayer> twice = mlp();
  twice.push_back(linear_layer("in", 3, 3));
  refused(twice, {}, {"two layers are named 'in'"});
  refused(mlp(), {.begins = std::vector<std::string>(static_cast<size_t>(world.size()) + 1, "in")}, {"begins"});
  refused(mlp(), {.cut = Cut::time}, {".sample"});
  std::vector<PipelineLayer> lost = mlp();
  lost.push_back(linear_layer("more", 3, 3, {.tied = {{"weight", "nothing.weight"}}}));
  refused(lost, {}, {"more.weight", "nothing.weight"});
  lost.back() = linear_layer("more", 3, 3, {.tied = {{"weight", "in.weight"}}});
  refused(lost, {}, {"more.weight", "in.weight", "[3, 3]", "[10, 6]"});
  lost.back() = linear_layer("more", 3, 3, {.tied = {{"wait", "in.weight"}}});
  refused(lost, {}, {"no parameter 'more.wait'"});
  if (world.size() == 1) return;
  refused(mlp(), {.micro_batches = 2 + world.rank()}, {"micro_batches = 2", "micro_batches = 3", "pipe 1"});
  std::vector<PipelineLayer> other = mlp();
  if (world.rank() == 1) other.pop_back();
  refused(other, {}, {"13 layers", "12 layers", "rank 1"});
}

void pipeline_undeclared_sharing(const World& world) {
  const auto shared = in_double(torch::nn::Linear(6, 6));
  const auto used_by = [&](const std::string& name, const LayerOptions& options = {}) {
    return PipelineLayer(
        name, [shared] { return shared; }, options);
  };
  std::vector<PipelineLayer> layers{used_by("first")};
  for (int i = 0; i < 6; ++i) layers.push_back(linear_layer(fmt::format("fc{}", i), 6, 6));
  layers.push_back(linear_layer("out", 6, 3));
  // Made before, but used once.
  CpuPipeline fine(layers, world, {.loss = square_error});
  layers.insert(layers.end() - 1, used_by("second"));
  require_error([&] { Pipeline(layers, world, {.loss = square_error}); }, "UsageError",
                {"first.weight and second.weight are one tensor", ".tied = {{\"weight\", \"first.weight\"}}"});
}

void pipeline_bad_batches(const World& world) {
  CpuPipeline pipe(mlp(), world, {.micro_batches = 8, .loss = square_error});
  torch::optim::SGD sgd(pipe.parameters(), 0.1);
  const auto [x, y] = plain_data(1);
  const auto refused = [&](const std::function<void()>& call, std::initializer_list<std::string> words,
                           Where where = Where::current()) { require_error(call, "UsageError", words, where); };
  refused([&] { pipe.train_batch(x.slice(0, 0, 7), y.slice(0, 0, 7), sgd); },
          {"7 rows", "8 micro-batches", fmt::format("rank {}:", world.rank())});
  refused([&] { pipe.train_batch(x, y.slice(0, 0, 20), sgd); }, {"24 rows", "20"});
  refused([&] { pipe.train_batch({}, y, sgd); }, {"the first", "inputs"});
  refused([&] { pipe.eval_batch(x, {}); }, {"the last", "targets"});
  torch::nn::Linear other(2, 2);
  torch::optim::SGD wrong(world.rank() == 0 ? other->parameters() : pipe.parameters(), 0.1);
  refused([&] { pipe.train_batch(x, y, wrong); },
          {"not this pipeline's", "the optimizer of rank 0", "pipe.parameters()"});
  const Tensors all = pipe.parameters();
  torch::optim::SGD partial(world.rank() == world.size() - 1 ? Tensors(all.begin(), all.end() - 1) : all, 0.1);
  refused([&] { pipe.train_batch(x, y, partial); }, {"lacks 1", fmt::format("rank {}", world.size() - 1)});
  torch::optim::LBFGS mixing(all, torch::optim::LBFGSOptions(0.1));
  refused([&] { pipe.train_batch(x, y, mixing); }, {"LBFGS", "only a part", fmt::format("rank {}", world.rank())});
  if (world.size() > 1) {
    refused([&] { world.rank() == 0 ? pipe.eval_batch(x, y) : pipe.train_batch(x, y, sgd); }, {"another function"});
    refused([&] { pipe.train_batch(x, y, sgd, {.clip_norm = world.rank() == 0 ? 1.0 : 0.5}); },
            {"clip_norm is 1 on rank 0", "0.5 on rank 1"});
    optim::GradScaler scaler({.init_scale = world.rank() == 0 ? 1024.0 : 512.0});
    refused([&] { pipe.train_batch(x, y, sgd, {.scaler = &scaler}); }, {"the scale of the loss is 1024", "512"});
  }
  {
    const NoSync local = pipe.no_sync();
    refused([&] { pipe.train_batch(x, y, sgd); }, {"no_sync()", "accumulate()"});
  }
  CpuPipeline silent(mlp(), world, {.micro_batches = 2});
  refused([&] { silent.eval_batch(x, y); }, {"no loss", ".loss"});
  pipe.train_batch(x, y, sgd);  // nothing of this has harmed it
}

// Two lines of the model axis would each measure by a clock of their own.
void pipeline_time_of_split_layers(const World& world) {
  if (world.size() % 2 != 0) return;
  const Mesh mesh(world, {{"pipe", -1}, {"model", 2}});
  const std::vector<PipelineLayer> layers{
      linear_layer("in", 6, 6),
      {"split", [group = mesh["model"]] { return in_double(nn::ColumnParallelLinear(6, 6, group)); }},
      linear_layer("more", 6, 6),
      linear_layer("out", 6, 3)};
  const torch::Tensor x = plain_data(1).first;
  const auto cut = [&](Cut how) { CpuPipeline(layers, mesh["pipe"], {.loss = square_error, .cut = how, .sample = x}); };
  require_error([&] { cut(Cut::time); }, "UsageError",
                {"Cut::time", "layer 'split'", "weight is split over 2 ranks", "Cut::parameters", ".begins"});
  cut(Cut::parameters);
}

// What one replica refuses all refuse: if the others went on, a program that catches the error would average this
// replica's next step with their last one.
void pipeline_refused_on_one_replica(const World& world) {
  if (kPipelineRows % world.size() != 0) return;
  const PipelineNet net = mlp_net();
  OneProcess expected(net, world);
  expected.run(0, 2);
  for (const int degree : degrees_of(world)) {
    if (degree == world.size()) continue;  // there is one replica
    const PipelineLayout layout{degree, {.micro_batches = 2}};
    PipelineTraining training(world, net, layout);
    std::vector<double> losses = training.run(0, 1);
    const auto whole = training.batch(1);
    const int64_t rows = training.mesh.rank("data") == 0 ? 1 : whole.first.size(0);
    const torch::Tensor x = whole.first.slice(0, 0, rows), y = whole.second.slice(0, 0, rows);
    const auto refused = [&](const std::function<void()>& call) {
      require_error(call, "UsageError",
                    {fmt::format("(pipe {} of {})", training.mesh.rank("pipe"), degree),
                     "a batch of 1 rows cannot be cut into 2 micro-batches"});
    };
    refused([&] { training.pipe.train_batch(x, y, training.adam); });
    refused([&] { training.pipe.accumulate(x, y); });
    refused([&] { training.pipe.eval_batch(x, y); });
    losses.push_back(training.run(1, 2).back());
    require_same_losses(losses, expected.losses, layout.text());
    training.require_like(expected, layout.text() + ", after refused batches");
  }
}

void pipeline_ties_parted_on_one_replica(const World& world) {
  if (world.size() != 4) return;
  PipelineTraining training(world, word_net(), {2, {.micro_batches = 2}});
  training.run(0, 1);
  if (training.mesh.rank("data") == 1) {
    const torch::NoGradGuard no_grad;
    for (auto& item : training.pipe->named_parameters())
      if (item.key() == "head.weight") item.value().add_(1);
  }
  require_error([&] { training.run(1, 2); }, "UsageError", {"embed.weight", "differs between rank"});
}

// A rank that has a GPU computes there, unless it is told otherwise.
void pipeline_device(const World& world) {
  Pipeline pipe(mlp(), world, {.loss = square_error});
  for (const torch::Tensor& parameter : pipe.parameters())
    require(parameter.device() == world.device() || parameter.numel() == 0,
            "a parameter on " + parameter.device().str());
  const auto [x, y] = plain_data(1);
  const torch::Tensor mine = world.rank() == 0 ? x.to(torch::kMeta) : x;
  require_error([&] { pipe.eval_batch(mine, y); }, "UsageError",
                {fmt::format("rank 0 computes on {}, but its inputs are on meta", world.device().str())});
}

// As a Loader over the world gives them: another batch for each rank.
void pipeline_other_batches(const World& world) {
  if (world.size() == 1) return;
  CpuPipeline pipe(mlp(), world, {.micro_batches = 2, .loss = square_error});
  torch::optim::SGD sgd(pipe.parameters(), 0.1);
  const auto batch = plain_data(1), other = plain_data(2 + world.rank());
  const torch::Tensor &x = batch.first, &y = batch.second;
  const auto refused = [&](const std::function<void()>& call, const std::string& what) {
    require_error(call, "UsageError", {"rank 0 and rank 1 have different " + what, "Loader(dataset, mesh[\"data\"])"});
  };
  refused([&] { pipe.train_batch(other.first, y, sgd); }, "inputs");    // the first
  refused([&] { pipe.train_batch(x, other.second, sgd); }, "targets");  // the second
  refused([&] { pipe.eval_batch(other.first, y); }, "inputs");
  refused([&] { pipe.predict(other.first); }, "inputs");
  const Tensors both{x, torch::ones({kPipelineRows}, torch::kLong)}, swapped{both[1], both[0]};
  refused([&] { pipe.eval_batch(world.rank() == 1 ? swapped : both, y); }, "inputs");
  pipe.train_batch(x, y, sgd);
  // The fourth: the values count, not how they lie in memory, and only where a rank has them.
  const torch::Tensor lies_otherwise = x.t().contiguous().t();
  const BatchTensors mine = world.rank() == world.size() - 1 ? BatchTensors(lies_otherwise) : BatchTensors(x);
  pipe.train_batch(mine, y, sgd);
  for (int i = 5; i < 8; ++i) pipe.train_batch(x, y, sgd);
  refused([&] { pipe.train_batch(other.first, y, sgd); }, "inputs");  // the eighth
}

// What is tied must stay so.
void pipeline_parted_ties(const World& world) {
  if (world.size() > 10) return;
  CpuPipeline pipe(tied_words(), world, {.micro_batches = 2, .loss = word_loss});
  torch::optim::SGD sgd(pipe.parameters(), 0.1);
  const auto [x, y] = word_data(1);
  pipe.train_batch(x, y, sgd);
  if (world.size() == 1) {
    pipe->to(torch::kFloat);
    require_error([&] { pipe.train_batch(x, y, sgd); }, "UsageError", {"tied parameters of rank 0", "parted"});
    return;
  }
  const torch::NoGradGuard no_grad;
  for (auto& item : pipe->named_parameters())
    if (item.key() == "head.weight") item.value().add_(1);
  require_error([&] { pipe.train_batch(x, y, sgd); }, "UsageError", {"embed.weight", "differs between rank"});
}

// A layer that throws: its rank says what, the others who.
struct FailingLayer : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    if (x.size(0) == 3) throw UsageError("a layer that does not like three rows");
    return x;
  }
};
void pipeline_failing_layer(const World& world) {
  std::vector<PipelineLayer> layers = mlp();
  layers.push_back({"failing", [] { return std::make_shared<FailingLayer>(); }});
  CpuPipeline pipe(layers, world, {.micro_batches = 2, .loss = square_error});
  torch::optim::SGD sgd(pipe.parameters(), 0.1);
  const torch::Tensor x = doubles_like({6, 6}, 1), y = doubles_like({6, 3}, 2);
  const bool guilty = world.rank() == world.size() - 1;
  require_error(
      [&] { pipe.train_batch(x, y, sgd); }, guilty ? "UsageError" : "PeerError",
      {fmt::format("pipe stage {} of {}", world.rank(), world.size()), "a layer that does not like three rows"});
}

// The first rank fails in its last backward, when the last rank may be past its own and wait for the tied gradients.
struct FailsBackward : torch::nn::Module {
  explicit FailsBackward(int batches) : left(batches) {}
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = x * 1;
    y.register_hook([this](const torch::Tensor&) {
      if (--left == 0) throw UsageError("a gradient that is not liked");
    });
    return y;
  }
  int left;
};
void pipeline_failing_backward(const World& world) {
  if (world.size() < 2) return;
  constexpr int kBatches = 4;
  std::vector<PipelineLayer> layers = tied_ends().layers;
  layers.insert(layers.begin() + 1, {"failing", [=] { return std::make_shared<FailsBackward>(kBatches); }});
  CpuPipeline pipe(layers, world, {.micro_batches = kBatches, .loss = word_loss});
  torch::optim::SGD sgd(pipe.parameters(), 0.1);
  const auto [x, y] = word_data(1);
  const bool guilty = pipe.describe().find("layers embed") != std::string::npos;
  // Between hosts a connection may break before the reason has come.
  const bool reason = guilty || world.backend() == "shm";
  require_error([&] { pipe.train_batch(x, y, sgd); }, guilty ? "UsageError" : "PeerError",
                {reason ? "a gradient that is not liked" : "rank"});
}

void pipeline_other_learning_rates(const World& world) {
  if (world.size() == 1) return;
  for (const PipelineLayout& layout : sharded({PipelineLayout{1, {}}})) {
    PipelineTraining training(world, mlp_net(), layout);
    torch::optim::SGD sgd(training.pipe.parameters(), world.rank() == 1 ? 0.2 : 0.1);
    const auto [x, y] = training.batch(0);
    const auto step = [&, &input = x, &target = y] { training.pipe.train_batch(input, target, sgd); };
    require_error(step, "UsageError", {"Pipeline", "lr = 0.1", "lr = 0.2"});
  }
}

// In a mesh with a data axis that it was not given.
void pipeline_without_data(const World& world) {
  if (world.size() == 1) return;
  static std::string warnings;
  warnings.clear();
  const Mesh mesh(world, {{"pipe", 1}, {"data", -1}});
  const LogSink before = set_log_sink([](LogLevel level, std::string_view text) {
    if (level == LogLevel::warning) warnings += text;
  });
  { const CpuPipeline forgotten(mlp(), mesh["pipe"], {.loss = square_error}); }
  const bool warns = warnings.find("run beside each other") != std::string::npos;
  warnings.clear();
  { const CpuPipeline given(mlp(), mesh["pipe"], {.loss = square_error, .data = mesh["data"]}); }
  { const CpuPipeline whole(mlp(), world, {.loss = square_error}); }
  set_log_sink(before);
  require(warns == (world.rank() == 0) && warnings.empty(), "a warning on rank 0 only: " + warnings);
}

void pipeline_no_sync_over_the_step(const World& world) {
  if (world.size() == 1) return;
  PipelineTraining training(world, mlp_net(), {1, {.micro_batches = 2}});
  const NoSync local = training.pipe.no_sync();
  const auto step = [&](int i) {
    const auto [x, y] = training.batch(i);
    training.pipe.accumulate(x, y);
    training.adam.step();
    training.adam.zero_grad();
  };
  step(0);
  require_error([&] { step(1); }, "UsageError", {"parameter in.weight", "no_sync()", "pipe stage 0"});
}

}  // namespace

std::vector<Case> pipeline_refusal_cases() {
  return {{"pipeline_bad_options", pipeline_bad_options},
          {"pipeline_undeclared_sharing", pipeline_undeclared_sharing},
          {"pipeline_bad_batches", pipeline_bad_batches},
          {"pipeline_time_of_split_layers", pipeline_time_of_split_layers},
          {"pipeline_refused_on_one_replica", pipeline_refused_on_one_replica},
          {"pipeline_ties_parted_on_one_replica", pipeline_ties_parted_on_one_replica},
          {"pipeline_device", pipeline_device},
          {"pipeline_other_batches", pipeline_other_batches},
          {"pipeline_parted_ties", pipeline_parted_ties},
          {"pipeline_failing_layer", pipeline_failing_layer},
          {"pipeline_failing_backward", pipeline_failing_backward},
          {"pipeline_other_learning_rates", pipeline_other_learning_rates},
          {"pipeline_without_data", pipeline_without_data},
          {"pipeline_no_sync_over_the_step", pipeline_no_sync_over_the_step}};
}

}  // namespace trireme::test
