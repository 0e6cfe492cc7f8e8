// RandAugment with timm's ranges. A level goes from 0 to 10; with `inc` every operation grows stronger with it.
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/data/image/affine.h"
#include "trireme/data/image/augment.h"
#include "trireme/data/image/photometric.h"

namespace trireme::image {
namespace {

constexpr double kMaxLevel = 10;
constexpr double kMaxShift = 0.45;                              // of the side
constexpr std::array<uint8_t, kChannels> kMean{124, 116, 104};  // ImageNet's, as pixels

struct Config {
  double magnitude = kMaxLevel;
  double deviation = 0;
  int layers = 2;
  bool increasing = false;
  bool weighted = false;
};

/// "mstd0.5" -> "mstd", 0.5
struct Section {
  std::string_view key;
  std::optional<double> value;

  explicit Section(std::string_view text) : key(text.substr(0, text.find_first_of("0123456789"))) {
    const std::string_view digits = text.substr(key.size());
    double parsed = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), parsed);
    if (error == std::errc() && end == digits.data() + digits.size() && !digits.empty()) value = parsed;
  }
};

/// False when there is no such section.
bool read_section(const Section& section, Config& config) {
  if (!section.value) return false;
  if (section.key == "m")
    config.magnitude = *section.value;
  else if (section.key == "mstd")
    config.deviation = *section.value;
  else if (section.key == "n")
    config.layers = static_cast<int>(std::min(*section.value, 100.0));
  else if (section.key == "inc")
    config.increasing = true;
  else if (section.key == "w" && *section.value == 0)
    config.weighted = true;
  else
    return false;
  return true;
}

Config parse_config(const std::string& text) {
  const std::vector<std::string> parts = split(text, '-');
  if (parts.empty() || parts[0] != "rand")
    throw UsageError("TimmAutoAugment.config_str: {}: only policies that begin with rand- are there", printable(text));
  Config config;
  for (size_t i = 1; i < parts.size(); ++i)
    if (!read_section(Section(parts[i]), config))
      throw UsageError("TimmAutoAugment.config_str: {}: '{}' is none of m7, mstd0.5, n2, inc1, w0", printable(text),
                       printable(parts[i]));
  return config;
}

struct Call {
  Image& image;
  Random& random;
  const Config& config;
  AffineOptions affine;
  double strength;  // the level as 0 … 1

  double signed_by_chance(double x) const { return random.chance(0.5) ? x : -x; }
  /// For what becomes weaker with the level unless told otherwise.
  int count(int most) const {
    const int value = static_cast<int>(strength * most);
    return config.increasing ? most - value : value;
  }
  double factor() const { return config.increasing ? 1 + signed_by_chance(strength * 0.9) : strength * 1.8 + 0.1; }
};

struct Operation {
  double weight;  // with w0
  void (*apply)(const Call& call);
};

constexpr std::array<Operation, 15> kOperations{{
    {0.025, [](const Call& c) { auto_contrast(c.image); }},
    {0.005, [](const Call& c) { equalize(c.image); }},
    {0, [](const Call& c) { invert(c.image); }},
    {0.3, [](const Call& c) { rotate(c.image, c.signed_by_chance(c.strength * 30), c.affine); }},
    {0, [](const Call& c) { posterize(c.image, c.count(4)); }},
    {0.005, [](const Call& c) { solarize(c.image, c.count(256)); }},
    {0.005, [](const Call& c) { solarize_add(c.image, static_cast<int>(c.strength * 110)); }},
    {0.025, [](const Call& c) { enhance_color(c.image, c.factor()); }},
    {0.005, [](const Call& c) { enhance_contrast(c.image, c.factor()); }},
    {0.005, [](const Call& c) { enhance_brightness(c.image, c.factor()); }},
    {0.025, [](const Call& c) { enhance_sharpness(c.image, c.factor()); }},
    {0.2, [](const Call& c) { affine(c.image, {.xy = c.signed_by_chance(c.strength * 0.3)}, c.affine); }},
    {0.2, [](const Call& c) { affine(c.image, {.yx = c.signed_by_chance(c.strength * 0.3)}, c.affine); }},
    {0.1,
     [](const Call& c) {
       affine(c.image, {.x0 = c.signed_by_chance(c.strength * kMaxShift) * c.image.width}, c.affine);
     }},
    {0.1,
     [](const Call& c) {
       affine(c.image, {.y0 = c.signed_by_chance(c.strength * kMaxShift) * c.image.height}, c.affine);
     }},
}};

/// One that is not in `taken` yet, by the weights of those left; nothing when none is left.
const Operation* weighted_choice(std::array<bool, kOperations.size()>& taken, Random& random) {
  double left = 0;
  for (size_t i = 0; i < kOperations.size(); ++i) left += taken[i] ? 0 : kOperations[i].weight;
  double at = random.uniform() * left;
  for (size_t i = 0; i < kOperations.size(); ++i) {
    if (taken[i] || kOperations[i].weight == 0) continue;
    at -= kOperations[i].weight;
    if (at >= 0) continue;
    taken[i] = true;
    return &kOperations[i];
  }
  return nullptr;
}

std::vector<const Operation*> choose(const Config& config, Random& random) {
  std::vector<const Operation*> chosen;
  std::array<bool, kOperations.size()> taken{};
  for (int i = 0; i < config.layers; ++i)
    chosen.push_back(config.weighted ? weighted_choice(taken, random) : &kOperations[random.below(kOperations.size())]);
  return chosen;
}

}  // namespace

void TimmAutoAugment::check() const {
  parse_config(config_str);
}

void TimmAutoAugment::operator()(Image& image, Random& random) const {
  if (!random.chance(prob)) return;
  const Config config = parse_config(config_str);
  for (const Operation* operation : choose(config, random)) {
    if (operation == nullptr || !random.chance(0.5)) continue;
    const double level = config.deviation > 0 ? random.normal(config.magnitude, config.deviation) : config.magnitude;
    operation->apply({image,
                      random,
                      config,
                      {.interpolation = interpolation, .fill = kMean},
                      std::clamp(level, 0.0, kMaxLevel) / kMaxLevel});
  }
}

}  // namespace trireme::image
