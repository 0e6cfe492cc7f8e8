// `trireme export -c CONFIG -o Global.pretrained_model=CHECKPOINT -o Global.save_inference_dir=DIR`
#include "trireme/deploy/export/export.h"

#include <torch/torch.h>

#include <algorithm>
#include <filesystem>

#include "apps/program.h"
#include "trireme/config/preprocess/labels.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/parallel_env.h"
#include "trireme/core/shell.h"
#include "trireme/deploy/infer/engine.h"
#include "trireme/train/trainer/make_model.h"
#include "trireme/train/trainer/saver.h"

namespace trireme::apps {
namespace {

namespace fs = std::filesystem;
using config::Arch;
using config::Node;
using config::TrainConfig;

constexpr const char* kAbout =
    "Writes a trained network for inference into the folder Global.save_inference_dir: inference.pt\n"
    "(TorchScript), inference.onnx, and inference.yml, which says how images are prepared and what the classes\n"
    "are called. Adds the softmax and folds batch normalisation. Both files are compared with the network before\n"
    "they replace older ones.\n";

constexpr const char* kNotes =
    "keys that matter here\n"
    "  Global.pretrained_model     the weights: a checkpoint's folder or a safetensors file\n"
    "  Global.save_inference_dir   where to write (default: ./inference)\n"
    "  Global.image_shape          the input of the network: [channels, height, width]\n"
    "  Infer.transforms            how a picture becomes that input (default: those of DataLoader.Eval)\n"
    "  Infer.PostProcess.class_id_map_file   names of the classes, `number name` a line\n\n"
    "examples\n"
    "  trireme export -c ResNet50.yaml -o Global.pretrained_model=output/ResNet50/best_model\n"
    "  trireme infer --model-dir inference --image photo.jpg\n";

models::ClassifierPtr load_network(const TrainConfig& config) {
  const config::Global& global = config.global;
  const std::string weights = global.pretrained_model.empty() ? global.checkpoints : global.pretrained_model;
  torch::manual_seed(static_cast<uint64_t>(global.seed));
  const trainer::RoleModels net =
      trainer::make_network(config.arch, {.only_main = true, .own_weights = !weights.empty()});
  if (!weights.empty())
    trainer::load_weights(*net.main(), weights, {.what = "Global.pretrained_model", .new_classes = false});
  else if (!config.arch.main().pretrained.wanted)
    log_warning("no weights are named, so these are RANDOM ones, of use for tests only; for trained ones add -o {}",
                shell_word("Global.pretrained_model=" + (trainer::output_folder(config) / "best_model").string()));
  return net.main();
}

Node transform_ops(const TrainConfig& config) {
  const Node of_infer = config.document.section("Infer").at("transforms");
  if (!of_infer.is_null()) return of_infer;
  const Node of_eval = config.document.section("DataLoader").section("Eval").section("dataset").at("transform_ops");
  if (of_eval.is_null())
    log_warning(
        "there are neither Infer.transforms nor DataLoader.Eval.dataset.transform_ops: inference.yml cannot say "
        "how a picture is prepared, and the model will take tensors only");
  return of_eval;
}

/// Relative to the current folder, else, like `base`, to the file that names it.
fs::path label_file(const Node& named) {
  const fs::path file = named.as<std::string>();
  std::error_code ignored;
  if (fs::exists(file, ignored) || named.is_option()) return file;
  const fs::path beside = fs::path(*named.value()->origin.source).parent_path() / file;
  return fs::exists(beside, ignored) ? beside : file;
}

/// PaddleClas' configurations name a file of PaddleClas, which may be absent here.
std::vector<std::string> labels(const TrainConfig& config) {
  if (!config.infer || config.infer->post_process.class_id_map_file.empty()) return {};
  const Node named = config.infer->post_process.node.at("class_id_map_file");
  const fs::path file = label_file(named);
  std::error_code ignored;
  if (fs::exists(file, ignored)) return preprocess::read_labels(file);
  if (named.is_option()) named.fail("there is no {}", file.string());
  log_warning("{}", named.remark(fmt::format("there is no {}; answers will have class numbers only", file.string())));
  return {};
}

void require_label_for_each(const TrainConfig& config, const bundle::Description& description) {
  const auto count = static_cast<int64_t>(description.labels.size());
  if (count == 0 || count == description.output.class_num) return;
  config.infer->post_process.node.at("class_id_map_file")
      .fail(
          "has {} names, but {} has {} classes; name another file, or none by -o "
          "Infer.PostProcess.class_id_map_file=None",
          count, description.model_name, description.output.class_num);
}

bundle::Activation activation(const TrainConfig& config) {
  if (config.global.use_multilabel) return bundle::Activation::sigmoid;
  return config.arch.infer_add_softmax ? bundle::Activation::softmax : bundle::Activation::none;
}

bundle::Description describe(const TrainConfig& config) {
  const auto [channels, height, width] = config.global.image_shape;
  const Arch& arch = config.arch.main();
  bundle::Description description{.model_name = arch.name,
                                  .input = {.channels = static_cast<int>(channels),
                                            .height = static_cast<int>(height),
                                            .width = static_cast<int>(width)},
                                  .output = {.activation = activation(config), .class_num = arch.class_num},
                                  .transform_ops = transform_ops(config),
                                  .labels = labels(config)};
  if (config.infer) description.topk = static_cast<int>(std::min(config.infer->post_process.topk, arch.class_num));
  require_label_for_each(config, description);
  if (!description.transform_ops.is_null()) bundle::make_transforms(description);  // throws when they do not fit
  return description;
}

/// An empty value is an error, not the default: it mostly comes from a shell variable that was not set.
fs::path folder_of(const config::Global& global) {
  constexpr const char* kKey = "save_inference_dir";
  const Node named = global.node.at(kKey);
  const bool is_there = global.node.value()->find(kKey) != nullptr;
  if (is_there && (named.is_null() || global.save_inference_dir.empty()))
    named.fail("names no folder; expected a path, or leave the key out for {}", config::Global{}.save_inference_dir);
  return global.save_inference_dir;
}

/// Computes inference.onnx by OpenVINO.
deploy::OpenOnnx onnx_opener() {
  return [](const fs::path& folder, const bundle::Description& description) -> deploy::Scorer {
    const std::shared_ptr<infer::Engine> engine =
        infer::make_engine({.folder = folder, .kind = infer::EngineKind::openvino}, description);
    return [engine, classes = description.output.class_num](const torch::Tensor& images) {
      torch::Tensor scores = torch::empty({images.size(0), classes});
      engine->run({images.const_data_ptr<float>(), static_cast<size_t>(images.numel())}, images.size(0),
                  {scores.mutable_data_ptr<float>(), static_cast<size_t>(scores.numel())});
      return deploy::Outputs{scores};
    };
  };
}

deploy::Options export_options() {
  if (const auto reason = infer::why_no_engine(infer::EngineKind::openvino))
    return {.any_size = true, .no_engine = "OpenVINO is absent: " + *reason};
  return {.any_size = true, .open_onnx = onnx_opener()};
}

int export_network(const Options& /*options*/, const TrainConfig& config) {
  if (get_rank() != 0) return 0;  // all ranks have the same weights
  const bundle::Description description = describe(config);
  const fs::path folder = folder_of(config.global);
  const models::ClassifierPtr net = load_network(config);
  config.warn_unknown();
  deploy::export_model(net, description, folder, export_options());
  log_info("{} is exported to {}: {}, {}, {}; try: trireme infer --model-dir {} --image FILE", description.model_name,
           folder.string(), bundle::kTorchFile, bundle::kOnnxFile, bundle::kDescriptionFile,
           shell_word(folder.string()));
  return 0;
}

}  // namespace
}  // namespace trireme::apps

int main(int argc, char** argv) {
  using namespace trireme::apps;
  return run({.name = "export", .about = kAbout, .notes = kNotes, .reads_batches = false, .run = export_network}, argc,
             argv);
}
