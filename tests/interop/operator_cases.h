// Small networks that mean nothing: together they use every operator which our export can write as ONNX, and the layers
// that users' networks are made of. Each takes pictures of three channels.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

using Tensor = torch::Tensor;
using Tensors = std::vector<torch::Tensor>;

/// Holds the layers of a case under names.
struct Parts : torch::nn::Module {
  template <typename Layer>
  Layer add(Layer layer) {
    return register_module("part" + std::to_string(children().size()), layer);
  }
  Tensor weight(at::IntArrayRef sizes) {
    return register_parameter("weight" + std::to_string(parameters(false).size()), torch::randn(sizes));
  }
};

struct OperatorCase {
  std::string name;
  int side;
  bool any_size;  ///< it is right for pictures of other sizes
  std::shared_ptr<Parts> parts;
  std::function<Tensors(const Tensor&)> forward;
};

using Body = std::function<Tensors(const Tensor&)>;

inline OperatorCase make_case(const std::string& name, int side, bool any_size,
                              const std::function<Body(Parts&)>& build) {
  auto parts = std::make_shared<Parts>();
  Body forward = build(*parts);
  return {name, side, any_size, parts, forward};
}

inline Tensors curves(const Tensor& x) {
  const Tensor positive = x.abs() + 0.5;
  return {torch::gelu(x, "tanh"),
          torch::elu(x, 0.7),
          torch::pow(positive, 1.5),
          torch::pow(x, 2),
          torch::rsqrt(positive),
          torch::reciprocal(positive),
          torch::erf(x).roll({3, -11}, {2, 3}),
          torch::sin(x) * torch::cos(x)};
}

inline Tensors choices(const Tensor& x) {
  const Tensor y = x * x * 0.5 - 0.1;
  const Tensor between = torch::logical_and(x > -0.5, x <= 0.5);
  return {torch::where(x > y, x, -y),
          torch::where(torch::logical_not(between), 1 - x, x * 3),
          torch::where(x.lt(0.3), x, y * 2),
          x.masked_fill(x >= 1, 0.25) + torch::rsub(x, 2),
          torch::maximum(x, y) + torch::minimum(x, y * 2),
          x.clamp_min(-0.2) + y.clamp_max(0.1),
          torch::eq(x.to(torch::kLong), 1).to(torch::kFloat) + x.ne(0).type_as(x)};
}

inline Tensors slices(const Tensor& x) {  // N x 3 x 8 x 8
  const auto chunks = x.chunk(3, 1);
  const auto halves = x.split(4, 2);
  const auto uneven = x.split_with_sizes({1, 2}, 1);
  const auto columns = x.slice(3, 0, 4).unbind(3);
  return {
      x.slice(2, 1, 7, 2),    x.slice(3, -3),        x.narrow(2, 2, 3),     x.select(1, -1) + x.select(1, 0),
      chunks[0] * chunks[2],  halves[1] - halves[0], uneven[1] * uneven[0], torch::stack({columns[0], columns[3]}, 1),
      x.roll({2, -3}, {2, 3})};
}

inline Tensors reductions(const Tensor& x) {  // N x 3 x 8 x 8
  const auto [largest, where_largest] = x.max(3);
  const auto [smallest, where_smallest] = x.min(1, /*keepdim=*/true);
  const auto [best, where_best] = x.flatten(1).topk(5, 1);
  return {x.sum({2, 3}),
          x.norm(2, {1}, true),
          x.norm(3, 1),
          x.std({2, 3}, /*unbiased=*/true),
          x.var({1}, /*unbiased=*/false),
          torch::linalg_vector_norm(x, 1, {2}),
          largest,
          where_largest.to(torch::kFloat),
          smallest,
          where_smallest.to(torch::kFloat),
          torch::max(x, -x),
          x.amax({2}) + x.amin({2}),
          x.argmax(2).to(torch::kFloat),
          best,
          where_best.to(torch::kFloat)};
}

inline Tensors products(const Tensor& x) {  // N x 3 x 8 x 8
  const Tensor a = x.select(1, 0), b = x.select(1, 1), rows = x.select(1, 2).select(1, 0);
  return {torch::bmm(a, b), torch::baddbmm(a, a, b, /*beta=*/0.5, /*alpha=*/2),
          torch::einsum("bij, bkj -> bik", {a, b}), torch::einsum("bchw,bcw->bhc", {x, x.select(2, 1)}),
          torch::addmm(rows, rows, torch::ones({8, 8}), 0.5, 0.25)};
}

inline Tensors attentions(const Tensor& x) {  // N x 3 heads x 8 tokens x 8
  const Tensor q = x * 2, k = x.roll(1, 2), v = x - 1;
  const Tensor seen = x.select(1, 0).unsqueeze(1) < 0.8;
  return {torch::scaled_dot_product_attention(q, k, v), torch::scaled_dot_product_attention(q, k, v, {}, 0, true),
          torch::scaled_dot_product_attention(q, k, v, torch::logical_or(seen, torch::arange(8) == 0)),
          torch::scaled_dot_product_attention(q, k, v, x.slice(1, 0, 1), 0, false, 0.3)};
}

inline Tensors resized(const Tensor& x) {
  namespace F = torch::nn::functional;
  using Options = F::InterpolateFuncOptions;
  const std::vector<double> twice = {2, 2};
  const std::vector<int64_t> bigger = {x.size(2) * 2, x.size(3) + 3};
  return {F::interpolate(x, Options().scale_factor(twice).mode(torch::kNearest)),
          F::interpolate(x, Options().size(bigger).mode(torch::kBilinear).align_corners(false)),
          F::interpolate(x, Options().size(bigger).mode(torch::kBilinear).align_corners(true)),
          F::interpolate(x, Options().scale_factor(twice).mode(torch::kBicubic).align_corners(false))};
}

inline OperatorCase layers_case() {
  namespace nn = torch::nn;
  return make_case("Layers", 8, true, [](Parts& parts) -> Body {
    auto up = parts.add(
        nn::ConvTranspose2d(nn::ConvTranspose2dOptions(3, 8, 3).stride(2).padding(1).output_padding(1).bias(true)));
    auto grouped = parts.add(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(8, 8, 2).stride(2).groups(4)));
    auto groups = parts.add(nn::GroupNorm(nn::GroupNormOptions(4, 8)));
    auto instance = parts.add(nn::InstanceNorm2d(nn::InstanceNorm2dOptions(8).affine(true)));
    auto layer = parts.add(nn::LayerNorm(nn::LayerNormOptions({8})));
    auto prelu = parts.add(nn::PReLU(nn::PReLUOptions().num_parameters(8).init(0.1)));
    return [=](const Tensor& images) mutable -> Tensors {
      const Tensor x = up->forward(images);
      const Tensor rows = layer->forward(x.permute({0, 2, 3, 1}));
      return {groups->forward(x), instance->forward(x) + prelu->forward(x), rows, grouped->forward(x),
              torch::pixel_shuffle(x, 2)};
    };
  });
}

inline OperatorCase positions_case() {
  return make_case("Positions", 8, true, [](Parts& parts) -> Body {
    auto table = parts.add(torch::nn::Embedding(600, 4));
    const Tensor token = parts.weight({1, 1, 4});
    return [=](const Tensor& images) mutable -> Tensors {
      const int64_t batch = images.size(0), width = images.size(3);
      const Tensor places = table->forward(torch::arange(width));                 // W x 4
      const Tensor cells = images.flatten(2).transpose(1, 2).select(2, 0);        // N x HW
      const Tensor words = table->forward((cells.abs() * 3).to(torch::kLong));    // N x HW x 4
      const Tensor row = torch::arange(0, width, 1, torch::kFloat).unsqueeze(0);  // 1 x W
      return {
          torch::cat({token.expand({batch, -1, -1}), words}, 1),
          places.unsqueeze(0).expand_as(images.select(1, 0).slice(1, 0, 1).transpose(1, 2).expand({batch, width, 4})),
          images.select(1, 0).select(1, 0) + row + torch::zeros({batch, 1}) + torch::ones({1, width}),
          torch::full({batch, 2}, 1.5) * images.sum({2, 3}).slice(1, 0, 2),
          row.repeat({batch, 1}) * 0.1 + torch::zeros_like(row) + torch::ones_like(row),
          torch::matmul(places.t(), places)};
    };
  });
}

/// 2 x 2 cells of the picture become tokens, by sizes that are computed.
inline OperatorCase patches_case() {
  return make_case("Patches", 8, true, [](Parts& parts) -> Body {
    auto layer = parts.add(torch::nn::Linear(12, 5));
    return [=](const Tensor& x) mutable -> Tensors {
      const int64_t batch = x.size(0), height = x.size(2), width = x.size(3);
      const Tensor cells = x.view({batch, 3, height / 2, 2, width / 2, 2}).permute({0, 2, 4, 1, 3, 5});
      return {layer->forward(cells.clone().contiguous().view({batch, height / 2 * (width / 2), 12}))};
    };
  });
}

struct RecurrentOptions {
  int64_t layers = 2;
  bool both_ways = true;
  bool batch_first = true;
  bool bias = true;
  bool given_state = false;  ///< a weight, the same for all pictures
};

/// `start` is empty, or has the state and the cell.
inline Tensors run_layer(torch::nn::LSTM& layer, const Tensor& x, const Tensors& start) {
  std::optional<std::tuple<Tensor, Tensor>> given;
  if (!start.empty()) given.emplace(start[0], start[1]);
  const auto [y, state] = layer->forward(x, given);
  return {y, std::get<0>(state), std::get<1>(state)};
}

inline Tensors run_layer(torch::nn::GRU& layer, const Tensor& x, const Tensors& start) {
  const auto [y, state] = layer->forward(x, start.empty() ? Tensor() : start[0]);
  return {y, state};
}

template <typename Layer, typename LayerOptions>
OperatorCase recurrent_case(const std::string& name, const RecurrentOptions& options = {}) {
  return make_case(name, 8, true, [options](Parts& parts) -> Body {
    auto layer = parts.add(Layer(LayerOptions(24, 6)
                                     .num_layers(options.layers)
                                     .bidirectional(options.both_ways)
                                     .batch_first(options.batch_first)
                                     .bias(options.bias)));
    Tensors states;
    const int64_t sweeps = options.layers * (options.both_ways ? 2 : 1);
    if (options.given_state) states = {parts.weight({sweeps, 1, 6}), parts.weight({sweeps, 1, 6})};
    return [=](const Tensor& images) mutable -> Tensors {
      const Tensor rows = images.slice(3, 0, 8).permute({0, 2, 1, 3}).flatten(2);  // N x H x 24
      Tensors start;
      for (const Tensor& state : states) start.push_back(state.expand({-1, images.size(0), -1}));
      return run_layer(layer, options.batch_first ? rows : rows.transpose(0, 1), start);
    };
  });
}

inline OperatorCase transformer_case() {
  namespace nn = torch::nn;
  return make_case("Transformer", 8, true, [](Parts& parts) -> Body {
    auto patches = parts.add(nn::Conv2d(nn::Conv2dOptions(3, 16, 4).stride(4)));
    auto layer = parts.add(nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(16, 4).dim_feedforward(32)));
    auto attention = parts.add(nn::MultiheadAttention(nn::MultiheadAttentionOptions(16, 2)));
    const Tensor token = parts.weight({1, 1, 16});
    return [=](const Tensor& images) mutable -> Tensors {
      Tensor x = patches->forward(images).flatten(2).transpose(1, 2);  // N x T x 16
      x = torch::cat({token.expand({x.size(0), -1, -1}), x}, 1).transpose(0, 1);
      x = layer->forward(x);
      const auto [y, weights] = attention->forward(x, x, x);
      return {y.transpose(0, 1), weights};
    };
  });
}

inline std::vector<OperatorCase> operator_cases() {
  namespace nn = torch::nn;
  const auto plain = [](const char* name, Tensors (*of)(const Tensor&), bool any_size) {
    return make_case(name, 8, any_size, [of](Parts& parts) -> Body {
      auto norm = parts.add(nn::BatchNorm2d(3));  // so that there are weights
      return [=](const Tensor& x) mutable -> Tensors { return of(norm->forward(x)); };
    });
  };
  return {plain("Curves", curves, true),
          plain("Choices", choices, true),
          plain("Slices", slices, false),
          plain("Reductions", reductions, true),
          plain("Products", products, false),
          plain("Attentions", attentions, false),
          plain("Resized", resized, true),
          layers_case(),
          positions_case(),
          patches_case(),
          recurrent_case<nn::LSTM, nn::LSTMOptions>("LSTM"),
          recurrent_case<nn::GRU, nn::GRUOptions>("GRU"),
          recurrent_case<nn::LSTM, nn::LSTMOptions>("LSTM-sequence-first", {.batch_first = false}),
          recurrent_case<nn::LSTM, nn::LSTMOptions>(
              "LSTM-plain", {.layers = 1, .both_ways = false, .bias = false, .given_state = true}),
          recurrent_case<nn::GRU, nn::GRUOptions>("GRU-plain", {.layers = 1, .both_ways = false, .batch_first = false}),
          transformer_case()};
}
