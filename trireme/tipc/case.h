// A test case, understood: what to train, evaluate, export and infer with, and over which alternatives.
//
//   const Case test = make_case(read_config("test_tipc/configs/ResNet50/train_infer_cpp.txt"));
//   test.epochs.at(Mode::lite_train_lite_infer) == "2"
//
// A plain value; what makes no sense is a UsageError with file, line and key.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/tipc/config_text.h"
#include "trireme/tipc/gpu_list.h"
#include "trireme/tipc/mode.h"
#include "trireme/tipc/words.h"

namespace trireme::tipc {

/// How a program gets a value: `key=value` on its command line; no words when either is empty or `null`.
Words flag_words(const std::string& key, const std::string& value);

struct Flag {
  std::string key;
  std::string value = {};
  Words words() const { return flag_words(key, value); }
};

/// A number for every mode (`8`) or for some (`lite_train_lite_infer=2|whole_train_whole_infer=120`).
struct ModeNumber {
  std::string key;
  std::string origin;
  std::string any = {};
  std::map<Mode, std::string> by_mode = {};
  /// "" when it is left out. UsageError when the mode has none.
  std::string at(Mode mode) const;
};

struct Trainer {
  std::string name;  ///< norm_train, amp_train, fleet_train, distill_train, …
  Words command;
  Words export_command = {};   ///< empty: none
  std::string no_export = {};  ///< why it is not run after this training, nor inference; empty: it is
};

/// One combination of alternatives for the inference program.
struct InferVariant {
  bool gpu = false;
  Words words;       ///< its flags
  std::string name;  ///< "gpu_precision_fp16_batchsize_1"
};

struct GivenModel {
  std::string path;      ///< weights, or an exported model where there is no export
  Words export_command;  ///< empty: none
};

/// The section train_benchmark_params.
struct BenchmarkCase {
  std::vector<std::string> batch_sizes;
  std::vector<std::string> fp_items;  ///< fp32, fp16, bf16
  std::string epochs;
  std::string batch_origin, fp_origin;                                ///< how messages about the first two begin
  std::vector<std::pair<std::string, std::string>> environment = {};  ///< of `flags`
};

struct Case {
  std::string model_name;
  std::string python;       ///< goes before programs that end in .py
  bool long_names = false;  ///< folders named as the 51-line format does
  std::vector<Placement> placements;
  std::string device_key;  ///< of line 5; "null": programs are not told
  std::string autocast_key;
  std::vector<std::string> autocasts;  ///< null, amp (level O1), fp16 (level O2)
  ModeNumber epochs;
  Flag output_dir;
  ModeNumber batch_size;
  Flag pretrained;
  std::string train_model_name;
  std::string data_folder;  ///< where `prepare` puts the lite data
  Flag extra_train;
  std::vector<Trainer> trainers;
  Words eval;  ///< empty: none
  Flag extra_eval;
  Flag save_inference_dir;
  Flag export_weights;
  std::vector<GivenModel> given_models;
  Words inference;  ///< empty: none
  std::vector<InferVariant> infer_variants;
  Flag model_dir;
  Words infer_words;        ///< image, log and benchmark flags: the same in all variants
  Words train_infer_words;  ///< as above, after a training
  std::optional<BenchmarkCase> benchmark;
};

Case make_case(const ConfigText& config);

}  // namespace trireme::tipc
