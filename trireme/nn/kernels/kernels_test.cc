#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/test_variable.h"
#include "trireme/nn/kernels/depthwise.h"
#include "trireme/nn/kernels/dispatch.h"
#include "trireme/nn/kernels/product.h"
#include "trireme/nn/kernels/rows.h"

namespace trireme::nn::kernels {
namespace {

// Channel counts around every vector's width, and rows around the blocks that are summed in float and widened.
constexpr int64_t kChannels[] = {1, 3, 8, 16, 24, 40, 72, 200, 576};
constexpr int64_t kRows[] = {1, 2, 31, 64, 333};

std::vector<float> numbers(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// Whichever test comes first uses the vectors that TRIREME_SIMD asks for.
class ChosenVectors : public ::testing::Environment {
  void SetUp() override { choose_vectors(); }
};
[[maybe_unused]] ::testing::Environment* const kChosenVectors =
    ::testing::AddGlobalTestEnvironment(new ChosenVectors);  // GoogleTest deletes it

/// How narrow the vectors are that `wish` leads to: 0 for AVX-512.
int64_t narrowness(const std::optional<std::string>& wish) {
  static const std::vector<std::string> names = {"AVX3", "AVX2", "SSE4"};
  const ScopedVariable variable("TRIREME_SIMD", wish);
  choose_vectors();
  return std::find(names.begin(), names.end(), vectors_in_use()) - names.begin();
}

TEST(Vectors, AreNoWiderThanAskedFor) {
  const int64_t widest = narrowness(std::nullopt);
  EXPECT_EQ(narrowness("avx2"), std::max<int64_t>(widest, 1));
  EXPECT_EQ(narrowness("sse"), std::max<int64_t>(widest, 2));
  EXPECT_EQ(narrowness("portable"), 3);
  EXPECT_EQ(narrowness(std::nullopt), widest);
  choose_vectors();  // those of the environment again
}

// Plain loops round after each multiplication, AVX2 and AVX-512 only after the addition.
TEST(Vectors, AreThoseOfTheKernels) {
  const auto product = [](const std::optional<std::string>& wish) {
    const int64_t width = narrowness(wish);
    const auto a = numbers(12 * 40, 1), b = numbers(40 * 24, 2);
    std::vector<float> packed(static_cast<size_t>(packed_size(40, 24))), result(12 * 24);
    pack(b.data(), {.inner_step = 24, .column_step = 1}, 40, 24, packed.data());
    multiply(a.data(), 12, 40, packed.data(), 24, result.data(), Into::replace);
    return std::pair(width, result);
  };
  const auto [width, widest] = product(std::nullopt);
  const auto portable = product("portable").second;
  EXPECT_EQ(widest == portable, width > 1);
  choose_vectors();  // those of the environment again
}

TEST(Vectors, AnUnknownKindIsAnError) {
  const ScopedVariable variable("TRIREME_SIMD", "avx9");
  EXPECT_THAT(choose_vectors, testing::ThrowsMessage<UsageError>(testing::HasSubstr(
                                  "TRIREME_SIMD is 'avx9'; it must be avx2, sse or portable, or unset")));
}

double activated(Act act, double z) {
  if (act == Act::relu) return std::max(z, 0.0);
  if (act == Act::relu6) return std::min(std::max(z, 0.0), 6.0);
  if (act == Act::silu) return z / (1 + std::exp(-z));
  return act == Act::hardswish ? z * std::min(std::max(z + 3, 0.0), 6.0) / 6 : z;
}

double slope(Act act, double z) {
  if (act == Act::relu) return z > 0 ? 1 : 0;
  if (act == Act::relu6) return z > 0 && z < 6 ? 1 : 0;
  if (act == Act::silu) return (1 + z / (1 + std::exp(z))) / (1 + std::exp(-z));
  if (act == Act::hardswish) return z <= -3 ? 0 : z > 3 ? 1 : z / 3 + 0.5;
  return 1;
}

void expect_near(const std::vector<double>& expected, const auto& values, double tolerance, const std::string& what) {
  ASSERT_EQ(expected.size(), values.size());
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(expected[i], static_cast<double>(values[i]), tolerance * (1 + std::abs(expected[i])))
        << what << " " << i;
}

struct Case {
  Rows shape;
  Act act;
  bool extras;  // residual, gate and pooled
  std::string name() const {
    return std::to_string(shape.rows) + " x " + std::to_string(shape.channels) + " act " +
           std::to_string(static_cast<int>(act)) + (extras ? " with extras" : "");
  }
};

void for_each_case(const std::function<void(const Case&)>& f) {
  for (const int64_t channels : kChannels)
    for (const int64_t rows : kRows)
      for (const Act act : {Act::none, Act::relu, Act::relu6, Act::hardswish, Act::silu})
        for (const bool extras : {false, true}) f({{rows, channels}, act, extras});
}

TEST(Rows, SumsAreThoseOfDouble) {
  for_each_case([](const Case& test) {
    if (test.act != Act::none || test.extras) return;
    const auto [rows, channels] = test.shape;
    const auto x = numbers(rows * channels, 1), pivot = numbers(channels, 2);
    std::vector<double> sum(static_cast<size_t>(channels), 1), squares(sum), expected(sum), expected_squares(sum);
    for (size_t i = 0; i < x.size(); ++i) {
      const double distance = static_cast<double>(x[i]) - pivot[i % sum.size()];
      expected[i % sum.size()] += distance;
      expected_squares[i % sum.size()] += distance * distance;
    }
    add_sums(x.data(), test.shape, pivot.data(), sum.data(), squares.data());
    expect_near(expected, sum, 1e-5, test.name());
    expect_near(expected_squares, squares, 1e-5, test.name());
  });
}

TEST(Rows, NormaliseIsWhatItsFormulaSays) {
  for_each_case([](const Case& test) {
    const auto [rows, channels] = test.shape;
    const auto x = numbers(rows * channels, 1), residual = numbers(rows * channels, 2);
    const auto scale = numbers(channels, 3), shift = numbers(channels, 4), gate = numbers(channels, 5);
    std::vector<double> expected(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t c = i % scale.size();
      const double z = static_cast<double>(x[i]) * scale[c] + shift[c] + (test.extras ? residual[i] : 0);
      expected[i] = activated(test.act, z) * (test.extras ? gate[c] : 1);
    }
    Normalise how{.affine = {scale.data(), shift.data(), test.act}};
    if (test.extras) {
      how.residual = residual.data();
      how.gate = gate.data();
    }
    for (const bool stream : {false, true}) {
      how.stream = stream;
      std::vector<float> y(x.size());
      normalise(x.data(), test.shape, how, y.data());
      expect_near(expected, y, 1e-5, test.name());
    }
  });
}

TEST(Rows, BackwardIsTheDerivative) {
  for_each_case([](const Case& test) {
    const auto [rows, channels] = test.shape;
    const auto x = numbers(rows * channels, 1), dy = numbers(rows * channels, 2),
               residual = numbers(rows * channels, 6);
    const auto scale = numbers(channels, 3), shift = numbers(channels, 4), mean = numbers(channels, 5);
    const auto gate = numbers(channels, 7), pooled = numbers(channels, 8);
    std::vector<double> g(x.size()), sum(scale.size()), centred(scale.size()), gate_gradient(scale.size());
    std::vector<double> pool(scale.size()), dx(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t c = i % scale.size();
      const double z = static_cast<double>(x[i]) * scale[c] + shift[c];
      const double before = test.extras ? static_cast<double>(dy[i]) * gate[c] + pooled[c] : dy[i];
      g[i] = before * slope(test.act, z + (test.extras ? residual[i] : 0));
      sum[c] += g[i];
      centred[c] += g[i] * (static_cast<double>(x[i]) - mean[c]);
      pool[c] += activated(test.act, z);
      gate_gradient[c] += dy[i] * activated(test.act, z);
      dx[i] = gate[c] * g[i] + shift[c] * static_cast<double>(x[i]) + mean[c];
    }
    BackwardSums how{.affine = {scale.data(), shift.data(), test.act}, .mean = mean.data()};
    if (test.extras) {
      how.residual = residual.data();
      how.gate = gate.data();
      how.pooled = pooled.data();
    }
    std::vector<float> got(x.size()), pool_got(scale.size()), gate_got(scale.size()), dx_got(x.size());
    std::vector<double> sum_got(scale.size()), centred_got(scale.size());
    backward_sums(dy.data(), x.data(), test.shape, how, got.data(), sum_got.data(), centred_got.data());
    expect_near(g, got, 1e-5, test.name());
    expect_near(sum, sum_got, 1e-4, test.name());
    expect_near(centred, centred_got, 1e-4, test.name());
    add_activated_sums(x.data(), test.shape, how.affine, pool_got.data());
    expect_near(pool, pool_got, 1e-4, test.name());
    add_gate_gradient(dy.data(), x.data(), test.shape, how.affine, gate_got.data());
    expect_near(gate_gradient, gate_got, 1e-4, test.name());
    const BackwardInput input{gate.data(), shift.data(), mean.data()};
    backward_input(got.data(), x.data(), test.shape, input, dx_got.data());
    expect_near(dx, dx_got, 1e-5, test.name());
    backward_input_through(dy.data(), x.data(), test.shape, input, how, dx_got.data());
    expect_near(dx, dx_got, 1e-5, test.name());
  });
}

TEST(Rows, CopyPastCachesCopiesAtEveryPlace) {
  const auto from = numbers(200, 1);
  for (size_t begin = 0; begin < 20; ++begin)
    for (size_t count = 0; count + begin <= 100; count += 7) {
      std::vector<float> to(from.size(), 9), expected = to;
      std::copy_n(from.begin(), count, expected.begin() + static_cast<int64_t>(begin));
      copy_past_caches(from.data(), static_cast<int64_t>(count), to.data() + begin);
      EXPECT_EQ(expected, to) << begin << " " << count;
    }
}

TEST(Depthwise, EqualsItsDefinition) {
  for (const int64_t channels : kChannels)
    for (const int64_t kernel : {3, 5})
      for (const int64_t stride : {1, 2}) {
        const Depthwise shape{.height = 6, .width = 5, .channels = channels, .kernel = kernel, .stride = stride};
        auto frame = numbers(shape.frame_size(), 1);
        const auto weights = numbers(kernel * kernel * channels, 2), dy = numbers(shape.out_size(), 3);
        std::vector<double> out(dy.size()), weight_gradient(weights.size()), input_gradient(frame.size());
        for (int64_t y = 0; y < shape.out_height(); ++y)
          for (int64_t x = 0; x < shape.out_width(); ++x)
            for (int64_t tap = 0; tap < kernel * kernel; ++tap)
              for (int64_t c = 0; c < channels; ++c) {
                const auto at = static_cast<size_t>(
                    ((y * stride + tap / kernel) * shape.frame_width() + x * stride + tap % kernel) * channels + c);
                const auto to = static_cast<size_t>((y * shape.out_width() + x) * channels + c);
                const auto w = static_cast<size_t>(tap * channels + c);
                out[to] += static_cast<double>(frame[at]) * weights[w];
                weight_gradient[w] += static_cast<double>(frame[at]) * dy[to];
                input_gradient[at] += static_cast<double>(weights[w]) * dy[to];
              }
        std::vector<float> got(dy.size()), weight_got(weights.size()), input_got(frame.size());
        depthwise_forward(frame.data(), weights.data(), shape, got.data());
        add_depthwise_weight_gradient(frame.data(), dy.data(), shape, weight_got.data());
        add_depthwise_input_gradient(dy.data(), weights.data(), shape, input_got.data());
        const std::string what = std::to_string(channels) + " kernel " + std::to_string(kernel);
        expect_near(out, got, 1e-4, what);
        expect_near(weight_gradient, weight_got, 1e-4, what);
        expect_near(input_gradient, input_got, 1e-4, what);
      }
}

TEST(Product, EqualsItsDefinition) {
  for (const int64_t rows : {1, 3, 12, 29})
    for (const int64_t inner : {1, 7, 40})
      for (const int64_t columns : {1, 15, 16, 24, 33, 72}) {
        const auto a = numbers(rows * inner, 1), b = numbers(inner * columns, 2), c = numbers(rows * columns, 3);
        std::vector<double> expected(c.begin(), c.end()), transposed(b.size());
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t i = 0; i < inner; ++i)
            for (int64_t j = 0; j < columns; ++j) {
              const double left = a[static_cast<size_t>(r * inner + i)];
              expected[static_cast<size_t>(r * columns + j)] += left * b[static_cast<size_t>(i * columns + j)];
              transposed[static_cast<size_t>(i * columns + j)] += left * c[static_cast<size_t>(r * columns + j)];
            }
        std::vector<float> packed(static_cast<size_t>(packed_size(inner, columns))), got = c, product(b.size());
        pack(b.data(), {.inner_step = columns, .column_step = 1}, inner, columns, packed.data());
        multiply(a.data(), rows, inner, packed.data(), columns, got.data(), Into::add);
        const std::string what = std::to_string(rows) + " x " + std::to_string(inner) + " x " + std::to_string(columns);
        expect_near(expected, got, 1e-4, what);
        add_transposed_product(a.data(), inner, c.data(), columns, rows, product.data());
        expect_near(transposed, product, 1e-4, what);
      }
}

}  // namespace
}  // namespace trireme::nn::kernels
