#include "trireme/deploy/infer/engine.h"

#include <algorithm>
#include <utility>

#include "trireme/core/cpu_probe.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/plugin.h"
#include "trireme/core/text.h"
#include "trireme/deploy/infer/engine_plugin.h"

namespace trireme::infer {
namespace {

namespace fs = std::filesystem;

template <typename T>
using Name = std::pair<const char*, T>;

constexpr Name<EngineKind> kEngines[] = {
    {"auto", EngineKind::automatic}, {"openvino", EngineKind::openvino}, {"torch", EngineKind::torch}};
constexpr Name<Precision> kPrecisions[] = {
    {"fp32", Precision::fp32}, {"bf16", Precision::bf16}, {"fp16", Precision::fp16}};

template <typename T>
T parse(std::span<const Name<T>> names, std::string_view text, const char* what) {
  std::vector<std::string> known;
  for (const auto& [name, value] : names) {
    if (text == name) return value;
    known.emplace_back(name);
  }
  throw UsageError("there is no {} '{}'; there are {}", what, printable(text), join(known, ", "));
}

template <typename T>
const char* name_of(std::span<const Name<T>> names, T wanted) {
  return std::find_if(names.begin(), names.end(), [&](const auto& name) { return name.second == wanted; })->first;
}

/// What is known of a plugin without it.
struct Kind {
  const char* plugin_file;
  const char* network_file;
  const char* advice;  // for when it is absent
};

constexpr Kind kOpenVino{"libtrireme_openvino.so", bundle::kOnnxFile, TRIREME_OPENVINO_ADVICE};
constexpr Kind kTorch{"libtrireme_torch.so", bundle::kTorchFile, TRIREME_TORCH_ENGINE_ADVICE};

struct Loaded {
  const EnginePlugin* plugin = nullptr;
  std::string reason;  // when there is none
};

Loaded load(const Kind& kind) {
  const Plugin library = Plugin::open(kind.plugin_file);
  if (!library && Plugin::locate(kind.plugin_file)) return {nullptr, library.problem()};
  if (!library) return {nullptr, fmt::format("{}; {}", library.problem(), kind.advice)};
  const auto entry = library.function<decltype(trireme_engine_plugin)>(kEnginePluginEntry);
  if (!entry)
    return {nullptr, fmt::format("{} is not an engine of Trireme: it has no {}", kind.plugin_file, kEnginePluginEntry)};
  const EnginePlugin* plugin = entry();
  if (std::string_view(plugin->version) != kVersion)
    return {nullptr, fmt::format("{} is of Trireme {}, this program of {}; install both from one build",
                                 kind.plugin_file, plugin->version, kVersion)};
  return {plugin, ""};
}

const Loaded& openvino() {
  static const Loaded once = load(kOpenVino);
  return once;
}

/// libtorch reads the variable when it is loaded or soon after; there is no other way to tell it.
const Loaded& torch() {
  static const Loaded once = [] {
    avoid_broken_amx();
    return load(kTorch);
  }();
  return once;
}

const Loaded& loaded(EngineKind kind) {
  return kind == EngineKind::openvino ? openvino() : torch();
}

bool has(const EngineOptions& options, const Kind& kind) {
  std::error_code ignored;
  return fs::is_regular_file(options.folder / kind.network_file, ignored);
}

EngineKind choose(const EngineOptions& options) {
  if (options.kind != EngineKind::automatic) return options.kind;
  if (options.use_gpu) return EngineKind::torch;
  if (!has(options, kOpenVino) && has(options, kTorch)) return EngineKind::torch;
  if (openvino().plugin) return EngineKind::openvino;
  log_info("[infer] libtorch computes, because OpenVINO is not available: {}", openvino().reason);
  return EngineKind::torch;
}

void need_network(const fs::path& file) {
  std::error_code ignored;
  if (fs::is_regular_file(file, ignored)) return;
  const bool in_its_place = fs::exists(file, ignored);
  throw UsageError("{}{}{}; `trireme export` writes it, or choose another engine", in_its_place ? "" : "there is no ",
                   printable(file.string()), in_its_place ? " is not a file" : "");
}

void check(const EngineOptions& options, EngineKind kind) {
  if (options.cpu_threads < 0) throw UsageError("cpu_threads is {}; must be 0 or more", options.cpu_threads);
  if (options.use_gpu && kind == EngineKind::openvino)
    throw UsageError("the engine openvino computes on the CPU; on a GPU take the engine torch");
}

}  // namespace

EngineKind parse_engine(std::string_view name) {
  return parse<EngineKind>(kEngines, name, "engine");
}

const char* to_string(EngineKind kind) {
  return name_of<EngineKind>(kEngines, kind);
}

Precision parse_precision(std::string_view name) {
  return parse<Precision>(kPrecisions, name, "precision");
}

const char* to_string(Precision precision) {
  return name_of<Precision>(kPrecisions, precision);
}

std::optional<std::string> why_no_engine(EngineKind kind) {
  if (kind == EngineKind::automatic) kind = openvino().plugin ? EngineKind::openvino : EngineKind::torch;
  if (loaded(kind).plugin) return std::nullopt;
  return loaded(kind).reason;
}

std::unique_ptr<Engine> make_engine(const EngineOptions& options, const bundle::Description& description) {
  const EngineKind kind = choose(options);
  check(options, kind);
  const char* network = (kind == EngineKind::openvino ? kOpenVino : kTorch).network_file;
  need_network(options.folder / network);
  if (!loaded(kind).plugin) throw UsageError("the engine {} is absent: {}", to_string(kind), loaded(kind).reason);
  bundle::check_network(options.folder, network, description);
  EngineOptions possible = options;
  possible.cpu_threads = std::min(options.cpu_threads, usable_cores());  // more would mostly wait for each other
  return loaded(kind).plugin->make(possible, description, {.amx_is_broken = amx_is_broken()});
}

}  // namespace trireme::infer
