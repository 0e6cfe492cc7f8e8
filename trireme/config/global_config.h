// The sections Global, AMP and EMA. Names and meanings are PaddleClas', and so are the defaults unless noted.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/config/node.h"

namespace trireme::config {

enum class Device { cpu, gpu };

/// How the ranks divide a training. Trireme's own section, Global.parallel.
struct Parallel {
  int64_t data = -1;           ///< ranks that have different pictures; -1: all
  int64_t pipe = 1;            ///< ranks that have different layers
  int64_t model = 1;           ///< ranks that have parts of each layer
  std::string shard = "none";  ///< what the data axis splits: optimizer, gradients, parameters
  Node node;
};

struct Global {
  std::string checkpoints;       ///< resume from here; empty: start
  std::string pretrained_model;  ///< weights to begin with; empty: as the model is made
  std::string output_dir = "./output/";
  Device device = Device::gpu;
  int64_t epochs = 1;
  int64_t save_interval = 1;  ///< epochs
  int64_t save_steps = 0;     ///< also save within an epoch, every so many steps; 0: not. Trireme's own key
  double save_minutes = 10;   ///< the same by time since the last save. Trireme's own key
  bool eval_during_train = true;
  int64_t eval_interval = 1;     ///< epochs
  int64_t start_eval_epoch = 0;  ///< not before it
  int64_t print_batch_step = 10;
  bool use_visualdl = false;  ///< training curves; Trireme writes them for TensorBoard
  std::array<int64_t, 3> image_shape{3, 224, 224};
  std::string save_inference_dir = "./inference";
  int64_t seed = 0;         ///< of rank 0; rank r has seed + r
  int64_t update_freq = 1;  ///< batches whose gradients make one step
  std::optional<int64_t> iter_per_epoch;
  std::vector<int64_t> log_ranks{0};
  Parallel parallel;
  bool print_mem_info = true;
  std::string eval_mode = "classification";
  std::string train_mode;
  bool use_multilabel = false;
  Node node;
};

struct Amp {
  bool use_amp = false;  ///< when the section is there without this key: true, as older files mean it
  bool use_fp16_test = false;
  double scale_loss = 128;               ///< PaddleClas: 1, with which small gradients vanish in fp16
  bool use_dynamic_loss_scaling = true;  ///< PaddleClas: false
  std::string level = "O1";              ///< O1: autocast; O2: low-precision weights with fp32 masters
  std::string dtype = "float16";         ///< or bfloat16; Trireme's own key
  Node node;
};

/// Present in the file: on.
struct Ema {
  bool enabled = false;
  double decay = 0.9999;
};

Global read_global(const Node& section);
Amp read_amp(const Node& section);
Ema read_ema(const Node& section);

}  // namespace trireme::config
