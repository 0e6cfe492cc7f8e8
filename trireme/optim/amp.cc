#include "trireme/optim/amp.h"

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include "trireme/core/error.h"
#include "trireme/core/state_text.h"
#include "trireme/optim/optimizers.h"
#include "trireme/optim/split_tensors.h"
#include "trireme/optim/tensors.h"

namespace trireme::optim {
namespace {

using torch::Tensor;

void check(const GradScaler::Options& options) {
  if (!(options.init_scale > 0)) throw UsageError("GradScaler: init_scale {} must be above 0", options.init_scale);
  if (!(options.growth >= 1)) throw UsageError("GradScaler: growth {} must be at least 1", options.growth);
  if (!(options.backoff > 0 && options.backoff <= 1))
    throw UsageError("GradScaler: backoff {} must lie in (0, 1]", options.backoff);
  if (options.growth_interval < 1 || options.backoff_every < 1)
    throw UsageError("GradScaler: growth_interval {} and backoff_every {} must be at least 1", options.growth_interval,
                     options.backoff_every);
}

void check_unscalable(const Tensor& grad) {
  if (grad.layout() != torch::kStrided)
    throw UsageError("GradScaler: a gradient is sparse; only dense ones are scaled");
  if (grad.scalar_type() == torch::kHalf)
    throw UsageError(
        "GradScaler: the gradients are fp16, in which they cannot be unscaled; keep fp32 weights (O1), or "
        "give the optimizer the parameters of MasterWeights (O2)");
}

/// Unscales all gradients and returns one float on `home`, above 0 when one was not finite.
Tensor unscale_all(const std::vector<Tensor>& parameters, const Tensor& scale) {
  const Tensor inverse = scale.to(torch::kDouble).reciprocal().to(torch::kFloat);
  Tensor found = torch::zeros({1}, scale.options());
  for (auto& [key, grads] : gradients_by_call(parameters)) {
    check_unscalable(grads[0]);
    Tensor here = torch::zeros({1}, grads[0].options().dtype(torch::kFloat));
    std::vector<Tensor> list = grads;
    at::_amp_foreach_non_finite_check_and_unscale_(list, here, inverse.to(here.device()));
    found = torch::max(found, here.to(found.device()));
  }
  return found;
}

}  // namespace

Autocast::Autocast(const Options& options)
    : device_(options.device),
      was_enabled_(at::autocast::is_autocast_enabled(options.device)),
      old_dtype_(at::autocast::get_autocast_dtype(options.device)) {
  if (!is_low_precision(options.dtype))
    throw UsageError("Autocast: dtype {} is neither BFloat16 nor Half", c10::toString(options.dtype));
  at::autocast::set_autocast_enabled(device_, options.enabled);
  at::autocast::set_autocast_dtype(device_, options.dtype);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, old_dtype_);
}

GradScaler::GradScaler(Options options)
    : options_(std::move(options)),
      scale_(torch::full({1}, options_.init_scale, torch::kFloat)),
      good_(torch::zeros({1}, torch::kInt)) {
  check(options_);
}

void GradScaler::move_to(const torch::Device& device) {
  scale_ = scale_.to(device);
  good_ = good_.to(device);
}

Tensor GradScaler::scale(const Tensor& loss) {
  if (!options_.enabled) return loss;
  move_to(loss.device());
  return loss * scale_.squeeze(0).to(loss.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat);
}

GradScaler::Unscaled* GradScaler::find(const torch::optim::Optimizer& optimizer) {
  for (Unscaled& entry : unscaled_)
    if (entry.optimizer == &optimizer) return &entry;
  return nullptr;
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  if (find(optimizer)) throw UsageError("GradScaler: unscale_() a second time for one optimizer; call update() first");
  torch::NoGradGuard no_grad;
  const std::vector<Tensor> parameters = parameters_of(optimizer);
  Tensor found = unscale_all(parameters, scale_);
  for (const SplitGroup& group : by_split(parameters))
    if (group.how) group.how->max(found);
  if (const auto model = spread_of(parameters)) model->max(found);
  if (options_.agree) options_.agree(found);
  unscaled_.push_back({.optimizer = &optimizer, .found = found});
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (const std::string complaint = complaint_about_parts(optimizer); !complaint.empty())
    throw UsageError("GradScaler: {}", complaint);
  if (options_.enabled && !find(optimizer)) unscale_(optimizer);
  Unscaled* entry = find(optimizer);
  if (entry && entry->stepped)
    throw UsageError("GradScaler: step() a second time for one optimizer; call update() first");
  if (entry) entry->stepped = true;
  if (entry && entry->found.item<float>() > 0) return false;
  optimizer.step();
  return true;
}

Tensor GradScaler::found_in_all() const {
  Tensor found = unscaled_[0].found;
  for (const Unscaled& entry : unscaled_) found = torch::max(found, entry.found);
  return found;
}

void GradScaler::update() {
  if (!options_.enabled) return;
  if (unscaled_.empty()) throw UsageError("GradScaler: update() before any step(); there is nothing to learn from");
  torch::NoGradGuard no_grad;
  const Tensor found = found_in_all();
  unscaled_.clear();
  if (!options_.dynamic) return;
  const bool overflow = found.item<float>() > 0;
  bad_ = overflow ? bad_ + 1 : 0;
  const bool falls = bad_ >= options_.backoff_every;
  at::_amp_update_scale_(scale_, good_, found, options_.growth, falls ? options_.backoff : 1.0,
                         options_.growth_interval);
  if (falls) {
    bad_ = 0;
    scale_.clamp_min_(options_.min_scale);
  }
}

double GradScaler::current_scale() const {
  return options_.enabled ? scale_.item<double>() : 1.0;
}

std::string GradScaler::state_text() const {
  // Numbers as the shortest texts that read back as the same.
  return fmt::format("scaler 1 scale={} good={} bad={}", scale_.item<double>(), good_.item<int>(), bad_);
}

void GradScaler::load_state(std::string_view text) {
  StateReader reader(text, "scaler 1 scale=… good=… bad=…");
  const double scale = reader.real("scale");
  const int64_t good = reader.whole("good");
  bad_ = reader.whole("bad");
  scale_.fill_(scale);
  good_.fill_(good);
}

}  // namespace trireme::optim
