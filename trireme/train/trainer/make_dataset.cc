#include "trireme/train/trainer/make_dataset.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>
#include <optional>

#include "trireme/config/check.h"
#include "trireme/config/preprocess/make_transforms.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/data/batch_ops.h"
#include "trireme/data/image_dataset.h"
#include "trireme/data/mnist.h"
#include "trireme/data/synthetic.h"

namespace trireme::trainer {
namespace {

namespace fs = std::filesystem;
using config::Node;

constexpr int64_t kMnistClasses = 10;
constexpr int64_t kMnistBytes = 28 * 28 * sizeof(float);

// --- pictures in files

fs::path need_folder(const Node& section, std::string_view key) {
  const auto folder = section.need<std::string>(key);
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    section.at(key).fail("{} is not a folder; name it by -o {}=PATH", folder, section.at(key).path());
  return folder;
}

/// What helps against a list that was refused: more classes, or another delimiter.
std::string list_advice(const std::string& file, const data::ImageListOptions& options, const Node& dataset) {
  const auto reads = [&](const data::ImageListOptions& other) -> std::optional<data::ImageList> {
    try {
      return data::read_image_list(file, other);
    } catch (const UsageError&) {
      return std::nullopt;
    }
  };
  data::ImageListOptions any = options;
  any.class_num = 0;
  if (const auto list = reads(any); list && list->class_num() > options.class_num)
    return fmt::format("; its largest label is {}: -o Arch.class_num={}", list->class_num() - 1, list->class_num());
  for (const auto& [delimiter, shown] : {std::pair("\t", "\\t"), {",", ","}, {";", ";"}, {" ", " "}}) {
    any.delimiter = delimiter;
    if (reads(any)) return fmt::format("; -o '{}.delimiter=\"{}\"' reads it", dataset.path(), shown);
  }
  return "";
}

data::ImageList read_list(const config::Dataset& dataset, const DataNeeds& needs) {
  const Node node = dataset.node.at("cls_label_path");
  const auto file = dataset.node.need<std::string>("cls_label_path");
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) node.fail("there is no list {}; name it by -o {}=PATH", file, node.path());
  const data::ImageListOptions options{.delimiter = dataset.delimiter,
                                       .class_num = needs.class_num,
                                       .labels_required = needs.labels,
                                       .relabel = dataset.relabel};
  try {
    return data::read_image_list(file, options);
  } catch (const UsageError& error) {
    node.fail("{}{}", error.what(), list_advice(file, options, dataset.node));
  }
}

MadeDataset images(const config::Dataset& dataset, data::ImageList list, const fs::path& root) {
  const auto& labels = list.labels();
  const bool labelled = std::find(labels.begin(), labels.end(), data::ImageList::kUnlabelled) == labels.end();
  image::Transforms transforms = preprocess::make_transforms(dataset.transform_ops, dataset.node.at("transform_ops"));
  const auto bytes = static_cast<int64_t>(transforms.elements() * sizeof(float));
  const data::ImageDatasetOptions options{.root = root,
                                          .packed = dataset.packed_file,
                                          .bad_share = dataset.bad_share,
                                          .bad_at_least = dataset.bad_at_least};
  try {
    return {std::make_shared<data::ImageDataset>(std::move(list), std::move(transforms), options), bytes, labelled};
  } catch (const UsageError& error) {
    dataset.node.at(dataset.packed_file.empty() ? "image_root" : "packed_file").fail("{}", error.what());
  }
}

MadeDataset from_list(const config::Dataset& dataset, const DataNeeds& needs) {
  const fs::path root =
      dataset.packed_file.empty() ? need_folder(dataset.node, "image_root") : fs::path(dataset.image_root);
  data::ImageList list = read_list(dataset, needs);
  if (needs.labels && list.class_num() < needs.class_num)
    log_info("{}: {} pictures, labels below {}; Arch.class_num is {}", dataset.cls_label_path, list.size(),
             list.class_num(), needs.class_num);
  return images(dataset, std::move(list), root);
}

MadeDataset from_folder(const config::Dataset& dataset, const DataNeeds& needs) {
  const fs::path root = need_folder(dataset.node, "image_root");
  data::ImageList list = data::read_image_folder(root);
  if (list.class_num() > needs.class_num)
    dataset.node.at("image_root")
        .fail("{} has {} sub-folders, one for each class, but Arch.class_num is {}: -o Arch.class_num={}",
              root.string(), list.class_num(), needs.class_num, list.class_num());
  return images(dataset, std::move(list), root);
}

// --- MNIST and its kind

/// One number, or one for each channel which are then equal.
double single(const Node& params, std::string_view key, double otherwise) {
  const auto values = params.find_list_or_one<double>(key);
  if (!values) return otherwise;
  if (values->size() != 1) params.at(key).fail("expected one number for grey pictures, got {}", values->size());
  return values->front();
}

data::MnistOptions mnist_options(const config::Dataset& dataset) {
  data::MnistOptions options;
  const std::string mode = config::choice(dataset.node, "mode", "train", {"train", "test", "Train", "Test", "eval"});
  options.split = mode == "train" || mode == "Train" ? data::Split::train : data::Split::test;
  for (const config::NamedNode& op : dataset.transform_ops) {
    config::check_choice(preprocess::place_of(op, dataset.node), op.name, {"NormalizeImage", "ToCHWImage"});
    if (op.name != "NormalizeImage") continue;
    const double scale = op.params.get("scale", 1.0 / 255);
    if (std::abs(scale * 255 - 1) > 1e-6)
      op.params.at("scale").fail("{} is not supported here; write 1.0/255.0", scale);
    options.mean = single(op.params, "mean", options.mean);
    options.std = single(op.params, "std", options.std);
    config::choice(op.params, "order", "", {"", "hwc", "chw"});
  }
  return options;
}

MadeDataset mnist(const config::Dataset& dataset, const DataNeeds& needs) {
  if (needs.class_num < kMnistClasses)
    dataset.node.fail("{} has {} classes, but Arch.class_num is {}", dataset.name, kMnistClasses, needs.class_num);
  const data::MnistOptions options = mnist_options(dataset);
  if (dataset.name == "FashionMnist" && dataset.image_root.empty())
    return {std::make_shared<data::FashionMnist>(options), kMnistBytes};
  return {std::make_shared<data::Mnist>(need_folder(dataset.node, "image_root"), options), kMnistBytes};
}

MadeDataset synthetic(const config::Dataset& dataset, const DataNeeds& needs) {
  const Node& node = dataset.node;
  const std::vector<int64_t> usual(needs.image_shape.begin(), needs.image_shape.end());
  const auto shape = node.get("image_shape", usual);
  const int64_t elements = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return {std::make_shared<data::Synthetic>(
              data::SyntheticOptions{.samples = config::whole(node, "samples", 1000, {.least = 1}),
                                     .shape = shape,
                                     .class_num = needs.class_num,
                                     .seed = static_cast<uint64_t>(config::whole(node, "seed", 0))}),
          elements * int64_t{sizeof(float)}};
}

using Maker = MadeDataset (*)(const config::Dataset&, const DataNeeds&);
const std::map<std::string, Maker> kDatasets = {{"ImageNetDataset", from_list},
                                                {"MultiScaleDataset", from_list},
                                                {"ImageFolder", from_folder},
                                                {"FashionMnist", mnist},
                                                {"Mnist", mnist},
                                                {"Synthetic", synthetic}};

const config::KeyOwners kDatasetKeys = {
    {"image_root", {"ImageNetDataset", "MultiScaleDataset", "ImageFolder", "FashionMnist", "Mnist"}},
    {"transform_ops", {"ImageNetDataset", "MultiScaleDataset", "ImageFolder", "FashionMnist", "Mnist"}},
    {"cls_label_path", {"ImageNetDataset", "MultiScaleDataset"}},
    {"delimiter", {"ImageNetDataset", "MultiScaleDataset"}},
    {"relabel", {"ImageNetDataset", "MultiScaleDataset"}},
    {"mode", {"FashionMnist", "Mnist"}}};

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : kDatasets) names.push_back(name);
  return names;
}

// --- what is done to whole batches

void warn_of_other_classes(const Node& params, int64_t class_num) {
  if (params.get("class_num", class_num) != class_num)
    config::warn_ignored(params, "class_num", fmt::format("labels have Arch.class_num = {} classes", class_num));
}

data::BatchOp mix_op(const std::string& name, const Node& params, const Node& place, int64_t class_num) {
  config::check_choice(place, name, {"MixupOperator", "CutmixOperator"});
  warn_of_other_classes(params, class_num);
  if (name == "MixupOperator")
    return data::Mixup{.alpha = params.get("alpha", data::Mixup{}.alpha), .class_num = class_num};
  return data::CutMix{.alpha = params.get("alpha", data::CutMix{}.alpha), .class_num = class_num};
}

data::BatchOp op_sampler(const Node& params, int64_t class_num) {
  warn_of_other_classes(params, class_num);
  std::vector<data::OpSampler::Choice> choices;
  for (const auto& [name, node] : params.entries())
    if (name != "class_num") choices.push_back({mix_op(name, node, node, class_num), node.get("prob", 0.5)});
  try {
    return data::OpSampler(std::move(choices), class_num);
  } catch (const UsageError& error) {
    params.fail("{}", error.what());
  }
}

data::BatchOp batch_op(const config::NamedNode& named, const Node& list, int64_t class_num) {
  const Node& place = preprocess::place_of(named, list);
  config::check_choice(place, named.name, {"OpSampler", "MixupOperator", "CutmixOperator"});
  if (named.name == "OpSampler") return op_sampler(named.params, class_num);
  return mix_op(named.name, named.params, place, class_num);
}

data::MultiScale multi_scale(const config::Sampler& sampler) {
  data::MultiScale scales{.divided_factor = sampler.divided_factor, .is_training = sampler.is_training};
  for (const config::Sampler::Scale& scale : sampler.scales) {
    if (scale.width != scale.height)
      sampler.node.at("scales").fail("[{}, {}] is not square; only square images are supported", scale.width,
                                     scale.height);
    scales.scales.push_back(scale.width);
  }
  return scales;
}

}  // namespace

MadeDataset make_dataset(const config::DataLoader& loader, const DataNeeds& needs) {
  const config::Dataset& dataset = loader.dataset;
  config::check_choice(dataset.node.at("name"), dataset.name, dataset_names());
  config::warn_of_keys_of_others(dataset.node, kDatasetKeys, dataset.name);
  MadeDataset made = kDatasets.at(dataset.name)(dataset, needs);
  for (const config::NamedNode& named : dataset.batch_transform_ops)
    made.samples = std::make_shared<data::BatchMap>(made.samples, batch_op(named, dataset.node, needs.class_num));
  return made;
}

data::LoaderOptions make_loader_options(const config::DataLoader& loader, uint64_t seed) {
  const config::Sampler& sampler = loader.sampler;
  config::check_choice(sampler.node.at("name"), sampler.name,
                       {"DistributedBatchSampler", "BatchSampler", "MultiScaleSampler"});
  return {.batch_size = sampler.batch_size,
          .shuffle = sampler.shuffle,
          .drop_last = sampler.drop_last,
          .seed = seed,
          .workers = static_cast<int>(loader.loader.num_workers),
          .multi_scale = multi_scale(sampler)};
}

}  // namespace trireme::trainer
