#include "trireme/config/global_config.h"

#include "trireme/config/check.h"
#include "trireme/core/text.h"

namespace trireme::config {
namespace {

Device read_device(const Node& section) {
  return choice(section, "device", "gpu", {"cpu", "gpu", "cuda"}) == "cpu" ? Device::cpu : Device::gpu;
}

std::array<int64_t, 3> read_shape(const Node& section) {
  const Node node = section.at("image_shape");
  if (node.is_null()) return Global{}.image_shape;
  const auto sizes = node.as<std::vector<int64_t>>();
  if (sizes.size() != 3) node.fail("expected channels, height and width, got {} numbers", sizes.size());
  for (const int64_t size : sizes)
    if (size < 1) node.fail("{} is too small; expected at least 1", size);
  return {sizes[0], sizes[1], sizes[2]};
}

/// "0", "0,1" or [0, 1].
std::vector<int64_t> read_ranks(const Node& section) {
  const Node node = section.at("log_ranks");
  if (node.is_null()) return Global{}.log_ranks;
  if (node.is_list()) return node.as<std::vector<int64_t>>();
  std::vector<int64_t> ranks;
  for (const std::string& part : split(node.as<std::string>(), ',')) {
    const auto rank = parse_int(trim(part), 0, 1 << 20);
    if (!rank) node.fail("expected ranks such as '0,1', got {}", node.shown());
    ranks.push_back(*rank);
  }
  return ranks;
}

Parallel read_parallel(const Node& section) {
  Parallel parallel;
  parallel.data = whole(section, "data", parallel.data, {.least = -1});
  if (parallel.data == 0)
    section.at("data").fail("expected a number of ranks, or -1 for all that the other axes leave");
  parallel.pipe = whole(section, "pipe", parallel.pipe, {.least = 1});
  parallel.model = whole(section, "model", parallel.model, {.least = 1});
  parallel.shard = choice(section, "shard", parallel.shard, {"none", "optimizer", "gradients", "parameters"});
  parallel.node = section;
  return parallel;
}

void read_intervals(const Node& section, Global& global) {
  global.epochs = need_whole(section, "epochs", {.least = 1, .most = 1'000'000});
  global.save_interval = whole(section, "save_interval", 1, {.least = -1});
  global.save_steps = whole(section, "save_steps", 0);
  global.save_minutes = real(section, "save_minutes", global.save_minutes);
  global.eval_during_train = section.get("eval_during_train", global.eval_during_train);
  global.eval_interval = whole(section, "eval_interval", 1, {.least = 1});
  global.start_eval_epoch = whole(section, "start_eval_epoch", 0);
  global.print_batch_step = whole(section, "print_batch_step", 10, {.least = 1});
  global.update_freq = whole(section, "update_freq", 1, {.least = 1});
  if (section.has("iter_per_epoch")) global.iter_per_epoch = need_whole(section, "iter_per_epoch", {.least = 1});
}

void read_modes(const Node& section, Global& global) {
  global.use_visualdl = section.get("use_visualdl", false);
  global.print_mem_info = section.get("print_mem_info", true);
  global.eval_mode = section.get("eval_mode", global.eval_mode);
  global.train_mode = section.get("train_mode", global.train_mode);
  global.use_multilabel = section.get("use_multilabel", false);
  warn_unless(false, section, "to_static", "Trireme trains without a static graph; trireme export makes one");
  warn_unless(false, section, "use_dali",
              "Trireme decodes images by threads of its own (DataLoader.*.loader.num_workers)");
  warn_unless(false, section, "uniform_output_enabled", "Trireme has one layout of its output folder");
}

}  // namespace

Global read_global(const Node& section) {
  Global global;
  global.checkpoints = section.get("checkpoints", global.checkpoints);
  global.pretrained_model = section.get("pretrained_model", global.pretrained_model);
  global.output_dir = section.get("output_dir", global.output_dir);
  global.save_inference_dir = section.get("save_inference_dir", global.save_inference_dir);
  global.device = read_device(section);
  global.image_shape = read_shape(section);
  global.seed = whole(section, "seed", 0);
  global.log_ranks = read_ranks(section);
  global.parallel = read_parallel(section.section("parallel"));
  read_intervals(section, global);
  read_modes(section, global);
  global.node = section;
  return global;
}

Amp read_amp(const Node& section) {
  Amp amp;
  amp.use_amp = section.get("use_amp", !section.is_null());
  amp.use_fp16_test = section.get("use_fp16_test", false);
  amp.scale_loss = real(section, "scale_loss", amp.scale_loss, {.least = 1e-30});
  amp.use_dynamic_loss_scaling = section.get("use_dynamic_loss_scaling", amp.use_dynamic_loss_scaling);
  warn_unless(false, section, "use_promote", "libtorch's autocast decides which operators run in low precision");
  amp.level = choice(section, "level", amp.level, {"O1", "O2"});
  amp.dtype = choice(section, "dtype", amp.dtype, {"float16", "bfloat16"});
  amp.node = section;
  return amp;
}

Ema read_ema(const Node& section) {
  return {.enabled = !section.is_null(), .decay = real(section, "decay", Ema{}.decay, {.least = 0, .most = 1})};
}

}  // namespace trireme::config
