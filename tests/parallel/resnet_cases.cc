// ResNet18 as a pipeline, with its stages split in every way, trains as the whole network does in one process.
#include "cases.h"

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
models::ClassifierPtr trained_alone(const World& world, int steps) {
  const auto net = models::resnet18({.class_num = kKinds});
  net->to(torch::kDouble);
  Pipeline first(resnet_in_double(), world.new_group({world.rank()}), {.loss = resnet_loss});
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
    sgd.zero_grad();
  }
  return net;
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
  const models::ClassifierPtr expected = trained_alone(world, kSteps);
  const auto wanted = expected->named_parameters();
  for (const ResNetLayout& layout : resnet_layouts_of(world)) {
    const Mesh mesh(world, {{"pipe", layout.stages}, {"data", -1}});
    PipelineOptions options{.micro_batches = kBatchParts / mesh.size("data"),
                            .loss = resnet_loss,
                            .cut = Cut::parameters,
                            .data = mesh["data"]};
    if (layout.shard) options.shard = ShardedOptions{.shard = *layout.shard, .unit_size = 8};
    Pipeline pipe(resnet_in_double(), mesh["pipe"], options);
    torch::optim::SGD sgd(pipe.parameters(), resnet_momentum());
    for (int i = 0; i < kSteps; ++i)
      pipe.train_batch(share(resnet_images(i), mesh["data"]), share(resnet_labels(i), mesh["data"]), sgd);
    for (const auto& item : pipe->named_parameters())
      require_near(item.value(), wanted[item.key()], 1e-7, fmt::format("{} of {}", item.key(), layout.text()));
  }
}

}  // namespace

std::vector<Case> resnet_cases() {
  return {{"resnet_layouts", resnet_layouts}};
}

}  // namespace trireme::test
