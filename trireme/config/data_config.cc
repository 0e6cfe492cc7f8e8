#include "trireme/config/data_config.h"

#include <set>

#include "trireme/config/check.h"
#include "trireme/core/log.h"

namespace trireme::config {
namespace {

constexpr WholeRange kBatch{.least = 1, .most = 1 << 24};
/// Those of which all keys are read here; others may have keys of their own.
const std::set<std::string> kCommonDatasets{"ImageNetDataset", "MultiScaleDataset", "FashionMnist", "Mnist"};
/// Those that read a file for each picture, which may be damaged.
const std::set<std::string> kFileDatasets{"ImageNetDataset", "MultiScaleDataset", "ImageFolder"};
const std::set<std::string> kCommonSamplers{"DistributedBatchSampler", "MultiScaleSampler"};

constexpr WholeRange kPixels{.least = 1, .most = 1 << 16};

Dataset read_dataset(const Node& section) {
  Dataset dataset;
  dataset.name = section.need<std::string>("name");
  dataset.image_root = section.get("image_root", dataset.image_root);
  dataset.cls_label_path = section.get("cls_label_path", dataset.cls_label_path);
  dataset.delimiter = section.get("delimiter", dataset.delimiter);
  if (dataset.delimiter.size() != 1)
    section.at("delimiter").fail("expected one character, got {}", section.at("delimiter").shown());
  dataset.relabel = section.get("relabel", false);
  dataset.mode = section.get("mode", dataset.mode);
  if (kFileDatasets.contains(dataset.name)) {
    dataset.bad_share = real(section, "bad_share", dataset.bad_share, {.most = 1});
    dataset.bad_at_least = whole(section, "bad_at_least", dataset.bad_at_least);
    dataset.packed_file = section.get("packed_file", dataset.packed_file);
  }
  dataset.transform_ops = read_named_list(section.at("transform_ops"));
  dataset.batch_transform_ops = read_named_list(section.at("batch_transform_ops"));
  if (!kCommonDatasets.contains(dataset.name)) section.hand_on();
  dataset.node = section;
  return dataset;
}

int64_t pixels(const Node& node) {
  const auto size = node.as<int64_t>();
  if (size < kPixels.least || size > kPixels.most)
    node.fail("{} is out of range; expected {} to {} pixels", size, kPixels.least, kPixels.most);
  return size;
}

/// 224 or [width, height].
Sampler::Scale read_scale(const Node& node) {
  if (!node.is_list()) return {pixels(node), pixels(node)};
  const auto sizes = node.items();
  if (sizes.size() != 2) node.fail("expected a size or [width, height], got a list of {}", sizes.size());
  return {pixels(sizes[0]), pixels(sizes[1])};
}

void read_multi_scale(const Node& section, Sampler& sampler) {
  sampler.first_bs = need_whole(section, "first_bs", kBatch);
  sampler.batch_size = sampler.first_bs;
  if (section.has("batch_size"))
    log_warning("{}", section.at("batch_size").remark("ignored by MultiScaleSampler; set first_bs"));
  for (const Node& node : section.need<Node>("scales").items()) sampler.scales.push_back(read_scale(node));
  if (sampler.scales.empty()) section.at("scales").fail("expected at least one size");
  sampler.divided_factor = whole(section, "divided_factor", sampler.divided_factor, kPixels);
  sampler.is_training = section.get("is_training", sampler.is_training);
  sampler.shuffle = section.get("shuffle", sampler.is_training);
}

Sampler read_sampler(const Node& section) {
  Sampler sampler;
  sampler.name = section.get("name", sampler.name);
  if (sampler.name == "MultiScaleSampler") {
    read_multi_scale(section, sampler);
  } else {
    sampler.batch_size = need_whole(section, "batch_size", kBatch);
    sampler.shuffle = section.get("shuffle", false);
  }
  sampler.drop_last = section.get("drop_last", false);
  if (!kCommonSamplers.contains(sampler.name)) section.hand_on();
  sampler.node = section;
  return sampler;
}

Loader read_loader(const Node& section) {
  warn_unless(true, section, "use_shared_memory", "workers are threads of one process, which share its memory");
  return {.num_workers = whole(section, "num_workers", Loader{}.num_workers, {.least = 0, .most = 1024})};
}

}  // namespace

DataLoader read_data_loader(const Node& section) {
  return {.dataset = read_dataset(section.need_section("dataset")),
          .sampler = read_sampler(section.need_section("sampler")),
          .loader = read_loader(section.section("loader"))};
}

}  // namespace trireme::config
