#include "trireme/deploy/export/sizes.h"

#include <fmt/ostream.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace trireme::deploy {
namespace {

namespace jit = torch::jit;

/// One number for each recording.
using Series = std::vector<int64_t>;
/// The same, or without the recording that is held out.
using Numbers = std::span<const int64_t>;

bool varies(Numbers numbers) {
  return std::any_of(numbers.begin(), numbers.end(), [&](int64_t number) { return number != numbers[0]; });
}

/// A size of a tensor, or the product of some of them.
struct Term {
  jit::Value* of;
  std::vector<int64_t> dims;
  Series sizes;
};

/// (size + before) / over * times + plus
struct Formula {
  int64_t times = 1, plus = 0, before = 0, over = 1;

  int64_t operator()(int64_t size) const { return (size + before) / over * times + plus; }
};

struct Expression {
  Term term;
  Formula formula;
};

std::optional<Formula> if_it_fits(const Formula& formula, Numbers sizes, Numbers wanted) {
  for (size_t i = 0; i < sizes.size(); ++i)
    if (formula(sizes[i]) != wanted[i]) return std::nullopt;
  return formula;
}

using Fit = std::optional<Formula> (*)(Numbers sizes, Numbers wanted);

std::optional<Formula> equal(Numbers sizes, Numbers wanted) {
  return if_it_fits({}, sizes, wanted);
}

std::optional<Formula> linear(Numbers sizes, Numbers wanted) {
  const auto other = std::find_if(sizes.begin(), sizes.end(), [&](int64_t size) { return size != sizes[0]; });
  if (other == sizes.end()) return std::nullopt;
  const int64_t rise = wanted[static_cast<size_t>(other - sizes.begin())] - wanted[0], run = *other - sizes[0];
  if (rise == 0 || rise % run != 0) return std::nullopt;
  return if_it_fits({.times = rise / run, .plus = wanted[0] - rise / run * sizes[0]}, sizes, wanted);
}

/// Rounded down.
std::optional<Formula> quotient(Numbers sizes, Numbers wanted) {
  if (wanted[0] < 1 || sizes[0] / wanted[0] < 2) return std::nullopt;
  return if_it_fits({.over = sizes[0] / wanted[0]}, sizes, wanted);
}

/// Rounded up.
std::optional<Formula> quotient_up(Numbers sizes, Numbers wanted) {
  if (wanted[0] < 1) return std::nullopt;
  const int64_t over = (sizes[0] + wanted[0] - 1) / wanted[0];
  if (over < 2) return std::nullopt;
  return if_it_fits({.before = over - 1, .over = over}, sizes, wanted);
}

class SizeFinder {
 public:
  /// Works sizes out from the first `count` recordings.
  SizeFinder(jit::Graph& graph, const RecordedShapes& shapes, size_t count)
      : graph_(graph), shapes_(shapes), count_(count) {}

  void add(jit::Value* value) { add_terms(value, known_); }
  /// `reader` is the operator that gets it; its own inputs are tried first.
  std::optional<Expression> find(Numbers wanted, jit::Node& reader) const;
  jit::Value* write(const Expression& expression, jit::Node* before);

 private:
  void add_terms(jit::Value* value, std::vector<Term>& terms) const;
  Numbers used(Numbers all) const { return all.first(count_); }

  jit::Graph& graph_;
  const RecordedShapes& shapes_;
  const size_t count_;
  std::vector<Term> known_;
};

/// Of each size that varies, and of products of two and three of them.
void SizeFinder::add_terms(jit::Value* value, std::vector<Term>& terms) const {
  const auto found = shapes_.find(value->unique());
  if (found == shapes_.end()) return;
  const size_t start = terms.size();
  for (size_t dim = 0; dim < found->second[0].size(); ++dim) {
    Series sizes;
    for (const Shape& shape : found->second) sizes.push_back(shape[dim]);
    if (!varies(used(sizes))) continue;
    for (size_t i = start, end = terms.size(); i < end; ++i) {
      Term product = terms[i];
      if (product.dims.size() > 2) continue;
      product.dims.push_back(static_cast<int64_t>(dim));
      std::transform(sizes.begin(), sizes.end(), product.sizes.begin(), product.sizes.begin(), std::multiplies<>());
      terms.push_back(std::move(product));
    }
    terms.push_back({value, {static_cast<int64_t>(dim)}, sizes});
  }
}

std::optional<Expression> SizeFinder::find(Numbers wanted, jit::Node& reader) const {
  std::vector<Term> near;
  for (jit::Value* input : reader.inputs()) add_terms(input, near);
  add_terms(graph_.inputs()[0], near);
  for (const Fit fit : {equal, linear, quotient, quotient_up}) {
    for (const Term& term : near)
      if (const auto formula = fit(used(term.sizes), used(wanted))) return Expression{term, *formula};
    for (auto term = known_.rbegin(); term != known_.rend(); ++term)
      if (const auto formula = fit(used(term->sizes), used(wanted))) return Expression{*term, *formula};
  }
  return std::nullopt;
}

jit::Value* SizeFinder::write(const Expression& expression, jit::Node* before) {
  const auto& [term, formula] = expression;
  const jit::WithInsertPoint here(before);
  jit::Value* result = nullptr;
  for (const int64_t dim : term.dims) {
    jit::Value* size = graph_.insert(c10::aten::size, {term.of, dim});
    result = result == nullptr ? size : graph_.insert(c10::aten::mul, {result, size});
  }
  if (formula.before != 0) result = graph_.insert(c10::aten::add, {result, formula.before});
  if (formula.over != 1) result = graph_.insert(c10::aten::floordiv, {result, formula.over});
  if (formula.times != 1) result = graph_.insert(c10::aten::mul, {result, formula.times});
  return formula.plus == 0 ? result : graph_.insert(c10::aten::add, {result, formula.plus});
}

/// What is compared of a constant: a NaN equals itself, a tensor its values.
bool same_constant(const jit::IValue& one, const jit::IValue& other) {
  if (one.isTensor() && other.isTensor())
    return one.toTensor().dtype() == other.toTensor().dtype() && one.toTensor().equal(other.toTensor());
  if (one.isDouble() && other.isDouble() && std::isnan(one.toDouble())) return std::isnan(other.toDouble());
  return one == other;
}

std::string text_of(const jit::IValue& constant) {
  if (constant.isTensor()) return fmt::format("a tensor of {}", fmt::join(constant.toTensor().sizes(), " x "));
  return fmt::format("{}", fmt::streamed(constant));
}

/// A node and those in its place in the other recordings.
using Row = std::vector<jit::Node*>;

std::vector<Row> rows(std::span<const Recording> recordings) {
  std::vector<Row> all;
  for (const Recording& recording : recordings) {
    size_t i = 0;
    for (jit::Node* node : recording.graph->nodes()) {
      if (i == all.size()) all.emplace_back();
      all[i++].push_back(node);
    }
  }
  return all;
}

/// The first operator that gets the value, also where it is an item of a list.
jit::Node& reader_of(const jit::Use& use) {
  jit::Node* user = use.user;
  while (user->kind() == c10::prim::ListConstruct && user->output()->hasUses()) user = user->output()->uses()[0].user;
  return *user;
}

class Freeing {
 public:
  Freeing(std::span<const Recording> recordings, const RecordedShapes& shapes, bool hold_out_last)
      : recordings_(recordings),
        finder_(*recordings[0].graph, shapes, hold_out_last ? recordings.size() - 1 : recordings.size()) {}

  std::optional<std::string> run() {
    for (const Row& row : rows(recordings_)) {
      if (row[0]->kind() == c10::prim::Constant) {
        if (auto unknown = settle(row)) return unknown;
      } else {
        for (jit::Value* output : row[0]->outputs()) finder_.add(output);
      }
    }
    for (const auto& [use, expression] : found_)
      use.user->replaceInput(use.offset, finder_.write(expression, use.user));
    return std::nullopt;
  }

 private:
  /// The graph changes only when all are found.
  std::optional<std::string> settle(const Row& constants) {
    std::vector<jit::IValue> values;
    for (const jit::Node* node : constants) values.push_back(jit::toIValue(node->output()).value());
    const auto other = std::find_if_not(values.begin(), values.end(),
                                        [&](const jit::IValue& value) { return same_constant(values[0], value); });
    if (other == values.end()) return std::nullopt;
    const bool whole =
        std::all_of(values.begin(), values.end(), [](const jit::IValue& value) { return value.isInt(); });
    Series wanted;
    for (const jit::IValue& value : values) wanted.push_back(whole ? value.toInt() : 0);
    for (const jit::Use& use : constants[0]->output()->uses()) {
      auto expression = whole ? finder_.find(wanted, reader_of(use)) : std::nullopt;
      if (!expression) return complaint(use, values, static_cast<size_t>(other - values.begin()));
      if (!if_it_fits(expression->formula, expression->term.sizes, wanted))
        return complaint(use, values, values.size() - 1);  // only the recording that is held out can differ
      found_.emplace_back(use, *std::move(expression));
    }
    return std::nullopt;
  }

  std::string complaint(const jit::Use& use, const std::vector<jit::IValue>& values, size_t other) const {
    return fmt::format(
        "operator {} gets {} for {} but {} for {}, and how that follows from the images is not known; take sizes from "
        "the tensor at hand, as in x.flatten(1) or x.view({{x.size(0), -1}})",
        reader_of(use).kind().toQualString(), text_of(values[0]), shown(recordings_[0].images), text_of(values[other]),
        shown(recordings_[other].images));
  }

  std::span<const Recording> recordings_;
  SizeFinder finder_;
  std::vector<std::pair<jit::Use, Expression>> found_;
};

}  // namespace

Shape shape_of(const jit::Value* value) {
  const auto type = value->type()->cast<c10::TensorType>();
  const auto sizes = type ? type->sizes().concrete_sizes() : std::nullopt;
  return sizes ? *sizes : Shape();
}

RecordedShapes recorded_shapes(std::span<const Recording> recordings) {
  RecordedShapes shapes;
  std::vector<Shape>& of_images = shapes[recordings[0].graph->inputs()[0]->unique()];
  for (const Recording& recording : recordings) of_images.push_back(recording.images.sizes().vec());
  for (const Row& row : rows(recordings))
    for (size_t i = 0; i < row[0]->outputs().size(); ++i) {
      if (!row[0]->outputs()[i]->type()->cast<c10::TensorType>() || row[0]->kind() == c10::prim::Constant) continue;
      std::vector<Shape>& each = shapes[row[0]->outputs()[i]->unique()];
      for (const jit::Node* node : row) each.push_back(shape_of(node->outputs()[i]));
    }
  return shapes;
}

std::optional<std::string> free_sizes(std::span<const Recording> recordings, const RecordedShapes& shapes,
                                      bool hold_out_last) {
  return Freeing(recordings, shapes, hold_out_last).run();
}

}  // namespace trireme::deploy
