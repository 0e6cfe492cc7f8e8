// Networks by OpenVINO, on the CPU.
//
// A network compiled for one batch size is up to a sixth faster than one for any (small networks; large ones are
// equal), but each takes a tenth of a second to compile and memory for its own copy of the weights. So the first few
// batch sizes asked for are compiled for themselves, and all others share one for any size.
#include <map>
#include <mutex>
#include <openvino/frontend/manager.hpp>
#include <openvino/openvino.hpp>

#include "trireme/core/error.h"
#include "trireme/core/thread_annotations.h"
#include "trireme/deploy/infer/engine_plugin.h"

namespace trireme::infer {
namespace {

constexpr size_t kOwnSizes = 3;  // one picture, full batches, and the rest of the last one
constexpr int64_t kAnySize = -1;

ov::element::Type element_type(Precision precision, const EngineSetting& setting) {
  if (precision == Precision::fp32 || setting.amx_is_broken) return ov::element::f32;
  return precision == Precision::bf16 ? ov::element::bf16 : ov::element::f16;
}

/// Without the hint OpenVINO computes in bf16 wherever the CPU can.
ov::AnyMap properties(const EngineOptions& options, const EngineSetting& setting) {
  ov::AnyMap map{{ov::hint::performance_mode.name(), ov::hint::PerformanceMode::LATENCY},
                 {ov::hint::inference_precision.name(), element_type(options.precision, setting)}};
  if (options.cpu_threads > 0) map[ov::inference_num_threads.name()] = options.cpu_threads;
  return map;
}

/// A network compiled for one batch size or any, and requests to run it: one for each caller at a time.
class Compiled {
 public:
  explicit Compiled(ov::CompiledModel model) : model_(std::move(model)) {}

  void run(const ov::Tensor& images, const ov::Tensor& scores) {
    ov::InferRequest request = take();
    request.set_input_tensor(images);
    request.set_output_tensor(scores);
    request.infer();  // one that throws is not used again
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(request));
  }
  ov::CompiledModel& model() { return model_; }

 private:
  ov::InferRequest take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return model_.create_infer_request();
    ov::InferRequest request = std::move(idle_.back());
    idle_.pop_back();
    return request;
  }

  ov::CompiledModel model_;
  Mutex mutex_;
  std::vector<ov::InferRequest> idle_ TRIREME_GUARDED_BY(mutex_);
};

class OpenVinoEngine : public Engine {
 public:
  OpenVinoEngine(const EngineOptions& options, const bundle::Description& description, const EngineSetting& setting)
      : options_(options),
        input_(description.input),
        classes_(description.output.class_num),
        properties_(properties(options, setting)) {
    read(options.folder / bundle::kOnnxFile);
    for_batch(1);
  }

  std::string name() const override { return name_; }

  void run(std::span<const float> images, int64_t batch, std::span<float> scores) override {
    // OpenVINO takes no pointer to const; it does not write to inputs.
    const ov::Tensor in(ov::element::f32, shape(batch), const_cast<float*>(images.data()));
    const ov::Tensor out(ov::element::f32, {static_cast<size_t>(batch), static_cast<size_t>(classes_)}, scores.data());
    try {
      for_batch(batch).run(in, out);
    } catch (const std::exception& error) {  // not only of its own: its parts let those of the standard through
      throw UsageError("OpenVINO cannot compute a batch of {}: {}", batch, last_line(error.what()));
    }
  }

 private:
  ov::Shape shape(int64_t batch) const {
    return {static_cast<size_t>(batch), static_cast<size_t>(input_.channels), static_cast<size_t>(input_.height),
            static_cast<size_t>(input_.width)};
  }

  /// By the reader of ONNX alone: core_.read_model() would let every reader try, and some of them print.
  void read(const std::filesystem::path& file) {
    try {
      const ov::frontend::FrontEnd::Ptr reader = ov::frontend::FrontEndManager().load_by_framework("onnx");
      network_ = reader->convert(reader->load(file.string()));
    } catch (const std::exception& error) {
      throw UsageError("{} is damaged or not a network that OpenVINO can read: {}", file.string(),
                       last_line(error.what()));
    }
    check(file.string());
  }

  void check(const std::string& file) const {
    if (network_->inputs().size() != 1 || network_->outputs().size() != 1)
      throw UsageError(
          "{} is damaged or not a network of a classifier: it has {} inputs and {} outputs, expected one of each", file,
          network_->inputs().size(), network_->outputs().size());
    const ov::PartialShape in = network_->input().get_partial_shape(), out = network_->output().get_partial_shape();
    const ov::PartialShape wanted{kAnySize, input_.channels, input_.height, input_.width};
    if (!in.compatible(wanted))
      throw UsageError("{} reads {}, but {} says {}; export both again", file, in.to_string(), bundle::kDescriptionFile,
                       wanted.to_string());
    if (!out.compatible(ov::PartialShape{kAnySize, classes_}))
      throw UsageError("{} gives {}, but {} says {} classes; export both again", file, out.to_string(),
                       bundle::kDescriptionFile, classes_);
  }

  std::unique_ptr<Compiled> compile(int64_t batch) {
    const std::shared_ptr<ov::Model> network = network_->clone();
    network->reshape(ov::PartialShape{batch, input_.channels, input_.height, input_.width});
    auto compiled = std::make_unique<Compiled>(core_.compile_model(network, "CPU", properties_));
    if (name_.empty()) name_ = describe(compiled->model());
    return compiled;
  }

  /// Others wait while one is compiled: they would only compete for the same cores.
  Compiled& for_batch(int64_t batch) {
    const std::lock_guard lock(mutex_);
    const auto found = compiled_.find(batch);
    if (found != compiled_.end()) return *found->second;
    const int64_t size = own_sizes_ < kOwnSizes ? batch : kAnySize;
    if (const auto shared = compiled_.find(size); shared != compiled_.end()) return *shared->second;
    auto made = compile(size);  // may throw: no entry before it has come
    if (size != kAnySize) ++own_sizes_;
    return *(compiled_[size] = std::move(made));
  }

  std::string describe(ov::CompiledModel& model) const {
    const std::string build = ov::get_openvino_version().buildNumber;
    const ov::element::Type used = model.get_property(ov::hint::inference_precision);
    const std::string precision = used == ov::element::bf16 ? "bf16" : used == ov::element::f16 ? "fp16" : "fp32";
    const std::string asked = to_string(options_.precision);
    return fmt::format("OpenVINO {} on the CPU, {}{}, threads: {}", build.substr(0, build.find('-')), precision,
                       precision == asked ? "" : " (" + asked + " is not available on this CPU)",
                       model.get_property(ov::inference_num_threads));
  }

  const EngineOptions options_;
  const bundle::Input input_;
  const int64_t classes_;
  const ov::AnyMap properties_;
  std::string name_;
  ov::Core core_;
  std::shared_ptr<ov::Model> network_;
  Mutex mutex_;
  std::map<int64_t, std::unique_ptr<Compiled>> compiled_ TRIREME_GUARDED_BY(mutex_);  // entries stay
  size_t own_sizes_ TRIREME_GUARDED_BY(mutex_) = 0;
};

std::unique_ptr<Engine> make(const EngineOptions& options, const bundle::Description& description,
                             const EngineSetting& setting) {
  try {
    return std::make_unique<OpenVinoEngine>(options, description, setting);
  } catch (const UsageError&) {
    throw;
  } catch (const std::exception& error) {
    throw UsageError("OpenVINO cannot use {}: {}", (options.folder / bundle::kOnnxFile).string(),
                     last_line(error.what()));
  }
}

const EnginePlugin kPlugin = {.version = kVersion, .make = make};

}  // namespace
}  // namespace trireme::infer

extern "C" [[gnu::visibility("default")]] const trireme::infer::EnginePlugin* trireme_engine_plugin() {
  return &trireme::infer::kPlugin;
}
