#include "trireme/tipc/config_format.h"

#include <fmt/core.h>

#include <algorithm>

#include "trireme/core/text.h"

namespace trireme::tipc {
namespace {

using Kind = LineRule::Kind;
constexpr const char* kWeights = "pretrain weight checkpoint model init load";
constexpr const char* kImages = "img image video audio input file data infer";

// What the documents show: one trainer, inference over devices and batch sizes.
const Format& short_format() {
  static const Format format{"32-line",
                             {{Kind::header, "", "train_params"},
                              {Kind::exact, "model_name", "model_name"},
                              {Kind::exact, "python", "python"},
                              {Kind::exact, "gpu_list", "gpu_list"},
                              {Kind::word, "train_device", "gpu device xpu npu"},
                              {Kind::word, "epochs", "epoch iter"},
                              {Kind::word, "output_dir", "output save dir"},
                              {Kind::word, "train_batch_size", "batch bs"},
                              {Kind::word, "pretrained", kWeights},
                              {Kind::exact, "train_model_name", "train_model_name"},
                              {Kind::word, "data_path", "data path dir"},
                              {Kind::filler, "", ""},
                              {Kind::exact, "trainer", "trainer"},
                              {Kind::ending, "train_command", "_train"},
                              {Kind::filler, "", ""},
                              {Kind::header, "", "eval_params"},
                              {Kind::exact, "eval", "eval"},
                              {Kind::filler, "", ""},
                              {Kind::header, "", "infer_params"},
                              {Kind::word, "save_inference_dir", "save infer output dir"},
                              {Kind::word, "export_weights", kWeights},
                              {Kind::ending, "norm_export", "_export"},
                              {Kind::filler, "", ""},
                              {Kind::exact, "infer_model", "train_model infer_model"},
                              {Kind::exact, "infer_export", "infer_export"},
                              {Kind::filler, "", ""},
                              {Kind::exact, "inference", "inference"},
                              {Kind::word, "infer_device", "gpu device xpu npu"},
                              {Kind::word, "infer_batch_size", "batch bs"},
                              {Kind::word, "model_dir", "model dir"},
                              {Kind::word, "image", kImages},
                              {Kind::word, "benchmark", "benchmark"}}};
  return format;
}

// PaddleClas' and PaddleOCR's: many trainers, inference also over threads and precisions.
const Format& long_format() {
  static const Format format{"51-line",
                             {{Kind::header, "", "train_params"},
                              {Kind::exact, "model_name", "model_name"},
                              {Kind::exact, "python", "python"},
                              {Kind::exact, "gpu_list", "gpu_list"},
                              {Kind::word, "train_device", "gpu device xpu npu"},
                              {Kind::word, "autocast", "cast amp precision fp"},
                              {Kind::word, "epochs", "epoch iter"},
                              {Kind::word, "output_dir", "output save dir"},
                              {Kind::word, "train_batch_size", "batch bs"},
                              {Kind::word, "pretrained", kWeights},
                              {Kind::exact, "train_model_name", "train_model_name"},
                              {Kind::word, "train_infer_img_dir", kImages},
                              {Kind::spare, "extra_train", ""},
                              {Kind::filler, "", ""},
                              {Kind::exact, "trainer", "trainer"},
                              {Kind::exact, "norm_train", "norm_train normal_train"},
                              {Kind::ending, "train_command_2", "_train"},
                              {Kind::ending, "train_command_3", "_train"},
                              {Kind::ending, "train_command_4", "_train"},
                              {Kind::ending, "train_command_5", "_train"},
                              {Kind::ending, "train_command_6", "_train"},
                              {Kind::filler, "", ""},
                              {Kind::header, "", "eval_params"},
                              {Kind::exact, "eval", "eval"},
                              {Kind::spare, "extra_eval", ""},
                              {Kind::filler, "", ""},
                              {Kind::header, "", "infer_params"},
                              {Kind::word, "save_inference_dir", "save infer output dir"},
                              {Kind::word, "export_weights", kWeights},
                              {Kind::exact, "norm_export", "norm_export"},
                              {Kind::exact, "quant_export", "quant_export pact_export"},
                              {Kind::exact, "fpgm_export", "fpgm_export"},
                              {Kind::exact, "distill_export", "distill_export"},
                              {Kind::spare, "export1", ""},
                              {Kind::spare, "export2", ""},
                              {Kind::spare, "inference_dir", ""},
                              {Kind::exact, "infer_model", "infer_model train_model"},
                              {Kind::exact, "infer_export", "infer_export"},
                              {Kind::exact, "infer_quant", "infer_quant"},
                              {Kind::exact, "inference", "inference"},
                              {Kind::word, "infer_device", "gpu device xpu npu"},
                              {Kind::word, "mkldnn", "mkldnn onednn"},
                              {Kind::word, "cpu_threads", "thread"},
                              {Kind::word, "infer_batch_size", "batch bs"},
                              {Kind::word, "tensorrt", "tensorrt trt"},
                              {Kind::word, "precision", "precision fp16"},
                              {Kind::word, "model_dir", "model dir"},
                              {Kind::word, "image", kImages},
                              {Kind::word, "save_log_path", "log"},
                              {Kind::word, "benchmark", "benchmark"},
                              {Kind::spare, "extra_infer", ""}}};
  return format;
}

std::string plain(std::string_view key) {
  std::string text = to_lower(key);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

}  // namespace

const Format& format_for(size_t lines) {
  constexpr size_t kBetween = 41;
  return lines <= kBetween ? short_format() : long_format();
}

bool key_fits(const LineRule& rule, std::string_view key) {
  const auto fits = [&](const std::string& known) {
    if (rule.kind == Kind::exact) return key == known;
    return rule.kind == Kind::ending ? key.ends_with(known) : plain(key).find(known) != std::string::npos;
  };
  if (rule.kind == Kind::spare) return true;
  if (key == "null") return rule.kind != Kind::exact;
  const std::vector<std::string> known = split(rule.keys, ' ');
  return std::any_of(known.begin(), known.end(), fits);
}

std::string expected_key(const LineRule& rule) {
  const std::vector<std::string> known = split(rule.keys, ' ');
  switch (rule.kind) {
    case Kind::header:
      return fmt::format("a header ====={}=====", rule.keys);
    case Kind::filler:
      return "'##'";
    case Kind::exact:
      return fmt::format("the key '{}'", join(known, "' or '"));
    case Kind::ending:
      return fmt::format("a key that ends in '{}'", join(known, "' or '"));
    case Kind::word:
      return fmt::format("a key for {} (with '{}' in it)", rule.name, join(known, "', '"));
    case Kind::spare:
      break;
  }
  return "any key:value";
}

}  // namespace trireme::tipc
