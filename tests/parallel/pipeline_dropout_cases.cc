// Dropout in a pipeline draws what one process draws.
#include <map>

#include "pipeline_training.h"

namespace trireme::test {
namespace {

// Each layer and micro-batch drops out other numbers: those that one process drops, the same along the model axis.
struct NotingDropout : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    if (!is_training()) return x;
    masks.push_back(torch::dropout(torch::ones_like(x), 0.5, /*train=*/true));
    return x * masks.back();
  }
  Tensors masks;
};

std::map<std::string, Tensors> masks_of(const Pipeline& pipe) {
  std::map<std::string, Tensors> all;
  for (const auto& item : pipe->named_children())
    if (const auto dropout = std::dynamic_pointer_cast<NotingDropout>(item.value())) all[item.key()] = dropout->masks;
  return all;
}

// Four masks of each layer: of two batches, and in each of two micro-batches, or of one that is computed twice. Dropout
// stands behind layers with weights: without a gradient to pass on nothing would be computed again.
std::map<std::string, Tensors> masks_of_training(const Group& pipes, const Mesh& mesh, bool recompute) {
  std::vector<PipelineLayer> layers;
  for (int i = 0; i < 4; ++i) {
    const LayerOptions options{.recompute = recompute};
    layers.push_back(linear_layer(fmt::format("fc{}", i), 6, 6));
    layers.push_back({fmt::format("drop{}", i), [] { return std::make_shared<NotingDropout>(); }, options});
  }
  CpuPipeline pipe(layers, pipes, {.micro_batches = recompute ? 1 : 2, .loss = square_error});
  torch::optim::SGD sgd(pipe.parameters(), 0.1);
  const torch::Tensor x = doubles_like({8, 6}, 1), y = doubles_like({8, 6}, 2);
  seed_along(mesh["data"], 5);
  for (int i = 0; i < 2; ++i) {
    pipe.train_batch(x, y, sgd);
    pipe.eval_batch(x, y);
  }
  if (mesh.size("data") == 1) require_equal_everywhere(torch::rand(3), "random numbers afterwards");
  return masks_of(pipe);
}

void require_different(const Tensors& masks, const std::string& what) {
  for (size_t i = 0; i < masks.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      require(!masks[i].equal(masks[j]), fmt::format("{}: masks {} and {} are one", what, j, i));
}

void require_masks_of_one_process(const World& world, const std::vector<MeshAxis>& axes) {
  const Mesh mesh(world, axes);
  for (const bool recompute : {false, true}) {
    const std::string what = fmt::format("{}, recompute {}", mesh.describe(), recompute);
    const auto expected = masks_of_training(world.new_group({world.rank()}), mesh, recompute);
    for (const auto& [name, masks] : masks_of_training(mesh["pipe"], mesh, recompute)) {
      require(masks.size() == 4 && expected.at(name).size() == 4, fmt::format("{}: {} masks", what, masks.size()));
      for (size_t i = 0; i < masks.size(); ++i)
        require(masks[i].equal(expected.at(name)[i]), fmt::format("{}: mask {} of {}", what, i, name));
      for (size_t i = 0; recompute && i < masks.size(); i += 2)
        require(masks[i].equal(masks[i + 1]), fmt::format("{}: {} draws another mask in recompute", what, name));
      Tensors along_data;
      all_gather(along_data, masks[0], mesh["data"]);
      require_different(along_data, what + " along data");
    }
    Tensors all;
    for (const auto& [name, masks] : expected)
      for (size_t i = 0; i < masks.size(); i += recompute ? 2 : 1) all.push_back(masks[i]);
    require_different(all, what);
  }
}

void pipeline_dropout(const World& world) {
  if (world.size() > 4) return;
  require_masks_of_one_process(world, {{"pipe", -1}, {"data", 1}, {"model", 1}});
  if (world.size() != 4) return;
  require_masks_of_one_process(world, {{"pipe", 2}, {"data", 1}, {"model", 2}});
  require_masks_of_one_process(world, {{"pipe", 2}, {"data", 2}, {"model", 1}});
}

}  // namespace

std::vector<Case> pipeline_dropout_cases() {
  return {{"pipeline_dropout", pipeline_dropout}};
}

}  // namespace trireme::test
