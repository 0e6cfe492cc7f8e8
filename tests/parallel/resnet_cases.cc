// ResNet18 as a pipeline, with its stages split in every way, trains as the whole network does in one process.
#include <torch/script.h>
#include <unistd.h>

#include <filesystem>

#include "cases.h"
#include "whole_model.h"

namespace trireme::test {
namespace {

constexpr int kBatchParts =
    4;  // of a batch: micro-batches times the data axis. Batch normalisation sees one at a time.
constexpr int64_t kImages = 4, kImageSide = 40, kKinds = 5;

std::vector<PipelineLayer> resnet_in_double() {
  std::vector<PipelineLayer> layers;
  for (const models::NetworkLayer& layer : models::resnet_layers(18, {.class_num = kKinds}))
    layers.emplace_back(layer.name, [make = layer.make] {
      auto module = make();
      module->to(torch::kDouble);
      return module;
    });
  return layers;
}

torch::Tensor resnet_images(int step) {
  return numbers({kImages, 3, kImageSide, kImageSide}, step).to(torch::kDouble);
}
torch::Tensor resnet_labels(int step) {
  return torch::arange(kImages).add(step).remainder(kKinds);
}
torch::Tensor resnet_loss(const torch::Tensor& scores, const torch::Tensor& labels) {
  return torch::cross_entropy_loss(scores, labels);
}

torch::optim::SGDOptions resnet_momentum() {
  return torch::optim::SGDOptions(0.01).momentum(0.9).weight_decay(1e-4);
}

// The zoo's own network, which knows nothing of pipelines, with the pipeline's first weights.
WholeModel trained_alone(const World& world, int steps) {
  const auto net = models::resnet18({.class_num = kKinds});
  net->to(torch::kDouble);
  Pipeline first(resnet_in_double(), world.new_group({world.rank()}), {.loss = resnet_loss, .device = torch::kCPU});
  {
    const torch::NoGradGuard no_grad;
    const auto weights = first->named_parameters();
    require(weights.size() == net->parameters().size(), "another number of parameters");
    for (auto& item : net->named_parameters()) item.value().copy_(weights[item.key()]);
  }
  torch::optim::SGD sgd(net->parameters(), resnet_momentum());
  for (int i = 0; i < steps; ++i) {
    const auto x = resnet_images(i).chunk(kBatchParts), y = resnet_labels(i).chunk(kBatchParts);
    for (size_t part = 0; part < x.size(); ++part)
      (resnet_loss(net->forward(x[part]), y[part]) / kBatchParts).backward();
    sgd.step();
    if (i + 1 < steps) sgd.zero_grad();
  }
  return whole_model({.model = *net, .optimizer = sgd}, net->named_parameters());
}

struct ResNetLayout {
  int stages = 1;
  std::optional<Shard> shard = {};
  std::string text() const {
    return fmt::format("pipe {}, shard {}", stages, shard ? static_cast<int>(*shard) + 1 : 0);
  }
};

std::vector<ResNetLayout> resnet_layouts_of(const World& world) {
  std::vector<ResNetLayout> all;
  for (const int stages : {1, 2, 4}) {
    const int data = world.size() / stages;
    if (world.size() % stages != 0 || kBatchParts % data != 0) continue;
    all.push_back({stages});
    if (data == 1) continue;
    for (const Shard shard : {Shard::optimizer, Shard::gradients, Shard::parameters}) all.push_back({stages, shard});
  }
  return all;
}

void resnet_layouts(const World& world) {
  constexpr int kSteps = 10;
  const WholeModel expected = trained_alone(world, kSteps);
  for (const ResNetLayout& layout : wanted(resnet_layouts_of(world), {{2, Shard::parameters}, {4}})) {
    const Mesh mesh(world, {{"pipe", layout.stages}, {"data", -1}});
    PipelineOptions options{.micro_batches = kBatchParts / mesh.size("data"),
                            .loss = resnet_loss,
                            .cut = Cut::parameters,
                            .device = torch::kCPU,
                            .data = mesh["data"]};
    if (layout.shard) options.shard = ShardedOptions{.shard = *layout.shard, .unit_size = 8};
    Pipeline pipe(resnet_in_double(), mesh["pipe"], options);
    torch::optim::SGD sgd(pipe.parameters(), resnet_momentum());
    const auto batch = [&](int i) {
      return std::pair(share(resnet_images(i), mesh["data"]), share(resnet_labels(i), mesh["data"]));
    };
    for (int i = 0; i < kSteps - 1; ++i) pipe.train_batch(batch(i).first, batch(i).second, sgd);
    pipe.accumulate(batch(kSteps - 1).first, batch(kSteps - 1).second);
    sgd.step();
    const WholeModel got = whole_model({.model = pipe, .optimizer = sgd}, pipe.named_parameters());
    require_like(world, got, expected, 1e-6, layout.text());
  }
}

// The checkpoint of a pipeline goes into the zoo's network and back, buffers and momentum too.
void resnet_checkpoints(const World& world) {
  const std::string folder = broadcast_object(fmt::format("resnet_checkpoints.{}", getpid()), 0, world);
  const std::string again = folder + ".again";
  const auto pipeline = [&](uint64_t seed) {
    return Pipeline(resnet_in_double(), world,
                    {.loss = resnet_loss, .cut = Cut::parameters, .seed = seed, .device = torch::kCPU});
  };
  Pipeline pipe = pipeline(1), second = pipeline(2);
  const auto net = models::resnet18({.class_num = kKinds});
  net->to(torch::kDouble);
  torch::optim::SGD sgd(pipe.parameters(), resnet_momentum()), second_sgd(second.parameters(), resnet_momentum()),
      net_sgd(net->parameters(), resnet_momentum());
  pipe.train_batch(resnet_images(1), resnet_labels(1), sgd);
  { Checkpoint(folder, world).save({.model = pipe, .optimizer = sgd}, {.step = 1}); }
  Checkpoint(folder, world).restore({.model = *net, .optimizer = net_sgd});
  { Checkpoint(again, world).save({.model = *net, .optimizer = net_sgd}, {.step = 1}); }
  Checkpoint(again, world).restore({.model = second, .optimizer = second_sgd});
  const io::TensorMap whole = io::state_dict(*net), mine = io::state_dict(*pipe), same = io::state_dict(*second);
  for (const auto& item : mine)
    require(whole[item.key()].equal(item.value()) && same[item.key()].equal(item.value()), item.key() + ": other bits");
  require(!mine.is_empty(), "no tensors");
  const torch::Tensor loss = pipe.train_batch(resnet_images(2), resnet_labels(2), sgd);
  require(second.train_batch(resnet_images(2), resnet_labels(2), second_sgd).equal(loss), "another loss");
  for (const auto& item : pipe->named_parameters())
    require(second->named_parameters()[item.key()].equal(item.value()), item.key() + ": another step");
  barrier(world);
  if (world.rank() == 0)
    for (const std::string& one : {folder, again}) std::filesystem::remove_all(one);
}

// The whole network comes together on rank 0, and is exported there: it says what the pipeline says.
void resnet_export(const World& world) {
  const Mesh mesh(world, {{"pipe", world.size() >= 4 ? 2 : world.size()}, {"data", -1}});
  PipelineOptions options{.loss = resnet_loss, .cut = Cut::parameters, .device = torch::kCPU, .data = mesh["data"]};
  if (mesh.size("data") > 1) options.shard = ShardedOptions{.shard = Shard::parameters, .unit_size = 8};
  Pipeline pipe(resnet_in_double(), mesh["pipe"], options);
  torch::optim::SGD sgd(pipe.parameters(), resnet_momentum());
  pipe.train_batch(share(resnet_images(1), mesh["data"]), share(resnet_labels(1), mesh["data"]), sgd);
  const io::TensorMap weights = whole_state_dict(pipe, world);
  require(weights.is_empty() == (world.rank() != 0), fmt::format("{} tensors", weights.size()));
  require(whole_state_dict(pipe, mesh["pipe"]).is_empty() == (mesh.rank("pipe") != 0), "on one rank of each pipe");
  if (mesh.size("pipe") > 1)
    require_error([&] { whole_state_dict(pipe, mesh["data"]); }, "UsageError",
                  {fmt::format("pipe {} of", mesh.rank("pipe")), "is not pipe 0", "give the World"});
  const torch::Tensor loss = pipe.eval_batch(resnet_images(2), resnet_labels(2));
  if (world.rank() != 0) return;
  const auto net = models::resnet18({.class_num = kKinds});
  net->to(torch::kDouble);
  io::load_into(*net, weights);
  const std::string folder = fmt::format("resnet_export.{}", getpid());
  deploy::export_model(net,
                       {.model_name = "ResNet18",
                        .input = {.channels = 3, .height = kImageSide, .width = kImageSide},
                        .output = {.activation = bundle::Activation::none}},
                       folder, {.onnx = false});
  torch::jit::Module loaded = torch::jit::load(folder + "/inference.pt");
  const torch::Tensor scores = loaded.forward({resnet_images(2).to(torch::kFloat)}).toTensor().to(torch::kDouble);
  require_near(resnet_loss(scores, resnet_labels(2)), loss, 1e-5, "the loss of what was exported");
  std::filesystem::remove_all(folder);
}

}  // namespace

std::vector<Case> resnet_cases() {
  return {
      {"resnet_export", resnet_export}, {"resnet_layouts", resnet_layouts}, {"resnet_checkpoints", resnet_checkpoints}};
}

}  // namespace trireme::test
