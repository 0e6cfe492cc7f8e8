// Gloo moves equal parts only; uneven ones are padded to the longest here. It joins neither bools nor 16-bit integers
// and knows no average; these are mapped to what it does.
#include "trireme/comm/backends/gloo.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "trireme/comm/backends/gloo_connection_impl.h"
#include "trireme/comm/dtype.h"
#include "trireme/core/error.h"

namespace trireme::comm {
namespace {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = GlooConnection::WorkPtr;

// Gloo adds no bools: their bytes are 0 and 1, of which the maximum is "or" and the minimum "and".
at::ScalarType gloo_type(DType dtype) {
  return to_torch(dtype == DType::boolean ? DType::u8 : dtype);
}

// Gloo has no average: the sum is divided afterwards.
c10d::ReduceOp gloo_op(DType dtype, ReduceOp op) {
  if (op == ReduceOp::avg) return to_c10d(ReduceOp::sum);
  if (dtype != DType::boolean) return to_c10d(op);
  return to_c10d(op == ReduceOp::sum || op == ReduceOp::max ? ReduceOp::max : ReduceOp::min);
}

// Integers in the order of these numbers, behind all of which NaN comes. The function is its own inverse on integers.
at::Tensor turn_negatives(const at::Tensor& bits) {
  const bool is_wide = bits.scalar_type() == at::kLong;
  const int64_t all_but_sign = is_wide ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int32_t>::max();
  return at::bitwise_xor(bits, at::bitwise_right_shift(bits, is_wide ? 63 : 31).bitwise_and(all_but_sign));
}
at::Tensor keys_of(const at::Tensor& numbers) {
  const at::Tensor plain = at::where(numbers.isnan(), std::numeric_limits<double>::quiet_NaN(), numbers);
  return turn_negatives(plain.view(numbers.scalar_type() == at::kDouble ? at::kLong : at::kInt));
}
at::Tensor numbers_of(const at::Tensor& keys) {
  return turn_negatives(keys).view(keys.scalar_type() == at::kLong ? at::kDouble : at::kFloat);
}

at::Tensor view(const void* data, size_t elements, DType dtype) {
  return at::from_blob(const_cast<void*>(data), {static_cast<int64_t>(elements)}, gloo_type(dtype));
}

// Bytes, where nothing is added: Gloo moves every type then.
at::Tensor bytes(const void* data, size_t elements, DType dtype) {
  return view(data, elements * size_of(dtype), DType::u8);
}

void copy(void* to, const void* from, size_t size) {
  if (size != 0 && to != from) std::memmove(to, from, size);
}

std::vector<int64_t> lengths_in_bytes(Engine::Counts counts, DType dtype) {
  std::vector<int64_t> lengths;
  for (const size_t count : counts) lengths.push_back(static_cast<int64_t>(count * size_of(dtype)));
  return lengths;
}

// Equal parts, as long as the longest.
struct Padded {
  Padded(Engine::Counts counts, DType dtype)
      : width(size_of(dtype)), longest(*std::max_element(counts.begin(), counts.end()) * width) {}
  at::Tensor part(const void* data, size_t elements) const {
    at::Tensor result = at::zeros({static_cast<int64_t>(longest)}, at::kByte);
    copy(result.data_ptr(), data, elements * width);
    return result;
  }
  Tensors pad(const void* data, Engine::Counts counts) const {
    Tensors parts;
    const auto* from = static_cast<const std::byte*>(data);
    for (const size_t count : counts) {
      parts.push_back(part(from, count));
      from += count * width;
    }
    return parts;
  }
  void unpad(const at::Tensor& all, Engine::Counts counts, void* output) const {
    const auto* from = static_cast<const std::byte*>(all.data_ptr());
    auto* to = static_cast<std::byte*>(output);
    for (const size_t count : counts) {
      copy(to, from, count * width);
      from += longest;
      to += count * width;
    }
  }
  size_t width;
  size_t longest;
};

class GlooEngine final : public Engine {
 public:
  GlooEngine(std::shared_ptr<Store> store, const GlooOptions& options)
      : Engine(options.member), connection_(std::move(store), options) {}

  const char* name() const override { return "gloo"; }

 private:
  void do_all_reduce(const Operation& call, void* data) override {
    all_reduce_tensor(call, view(data, call.dims.elements, call.dtype));
  }

  void do_reduce(const Operation& call, void* data) override {
    at::Tensor mine = view(data, call.dims.elements, call.dtype);
    if (rank() != call.root) mine = mine.clone();  // Gloo uses the others' memory for partial results
    reduce_in_place(call, mine, [&](Tensors& tensors, const c10d::ReduceOp& op) {
      return gloo().reduce(tensors, {.reduceOp = op, .rootRank = call.root});
    });
  }

  void do_broadcast(const Operation& call, void* data) override {
    if (call.dims.elements == 0) return;
    Tensors tensors{bytes(data, call.dims.elements, call.dtype)};
    connection_.run([&] { return gloo().broadcast(tensors, {.rootRank = call.root}); });
  }

  void do_all_gather(const Operation& call, const void* input, Counts counts, void* output) override {
    const Padded padded(counts, call.dtype);
    if (padded.longest == 0) return;
    Tensors inputs{padded.part(input, counts[me_index()])};
    at::Tensor all = at::empty({static_cast<int64_t>(padded.longest * counts.size())}, at::kByte);
    connection_.run([&] { return gloo()._allgather_base(all, inputs[0]); });
    padded.unpad(all, counts, output);
  }

  void do_gather(const Operation& call, const void* input, Counts counts, void* output) override {
    const Padded padded(counts, call.dtype);
    if (padded.longest == 0) return;
    Tensors inputs{padded.part(input, counts[me_index()])};
    at::Tensor all;
    std::vector<Tensors> outputs;
    if (rank() == call.root) {
      all = at::empty({static_cast<int64_t>(counts.size()), static_cast<int64_t>(padded.longest)}, at::kByte);
      outputs.push_back(all.unbind(0));
    }
    connection_.run([&] { return gloo().gather(outputs, inputs, {.rootRank = call.root}); });
    if (rank() == call.root) padded.unpad(all, counts, output);
  }

  void do_scatter(const Operation& call, const void* input, Counts counts, void* output) override {
    const Padded padded(counts, call.dtype);
    if (padded.longest == 0) return;
    std::vector<Tensors> inputs;
    if (rank() == call.root) inputs.push_back(padded.pad(input, counts));
    Tensors outputs{at::empty({static_cast<int64_t>(padded.longest)}, at::kByte)};
    connection_.run([&] { return gloo().scatter(outputs, inputs, {.rootRank = call.root}); });
    copy(output, outputs[0].data_ptr(), counts[me_index()] * padded.width);
  }

  // Gloo's own does no more than this.
  void do_reduce_scatter(const Operation& call, const void* input, Counts counts, void* output) override {
    const size_t width = size_of(call.dtype);
    const at::Tensor all = view(input, total(counts), call.dtype).clone();
    all_reduce_tensor(call, all);
    const auto* result = static_cast<const std::byte*>(all.data_ptr());
    copy(output, result + total(counts.first(me_index())) * width, counts[me_index()] * width);
  }

  void do_all_to_all(const Operation& call, const void* input, Counts sent, void* output, Counts received) override {
    at::Tensor from = bytes(input, total(sent), call.dtype);
    at::Tensor to = bytes(output, total(received), call.dtype);
    std::vector<int64_t> from_lengths = lengths_in_bytes(sent, call.dtype);
    std::vector<int64_t> to_lengths = lengths_in_bytes(received, call.dtype);
    connection_.run([&] { return gloo().alltoall_base(to, from, to_lengths, from_lengths); });
  }

  void do_barrier(const Operation& /*call*/) override {
    connection_.run([&] { return gloo().barrier(); });
  }

  void do_send(const Operation& call, const void* data) override {
    Header header = header_of(call);
    const auto start = [&](Tensors& tensors) { return gloo().send(tensors, call.to, kTag); };
    pass(start, header);
    pass_body(start, call, data);
  }

  void do_recv(const Operation& call, void* data) override {
    Header header = header_of(call);
    const auto start = [&](Tensors& tensors) { return gloo().recv(tensors, call.root, kTag); };
    pass(start, header);
    if (header != header_of(call))
      throw Disagreement("rank {}: recv of {}{} from rank {}, which has sent {}[{}]", called(rank()),
                         to_string(call.dtype), to_string(call.dims), called(call.root),
                         to_string(static_cast<DType>(header[1])), header[0]);
    pass_body(start, call, data);
  }

  void do_abort(const Blame& blame) override { connection_.abort(blame); }

  static constexpr int kTag = 1;
  using Header = std::array<int64_t, 2>;  // elements, type: sent before each message, so that a wrong size is an error

  static Header header_of(const Operation& call) {
    return {static_cast<int64_t>(call.dims.elements), static_cast<int64_t>(call.dtype)};
  }
  size_t me_index() const { return static_cast<size_t>(rank()); }
  c10d::ProcessGroupGloo& gloo() { return connection_.group(); }

  void all_reduce_tensor(const Operation& call, const at::Tensor& mine) {
    reduce_in_place(call, mine, [&](Tensors& tensors, const c10d::ReduceOp& op) {
      return gloo().allreduce(tensors, {.reduceOp = op});
    });
  }

  template <typename Start>
  void reduce_in_place(const Operation& call, const at::Tensor& mine, const Start& start) {
    if (mine.numel() == 0) return;
    if (is_floating(call.dtype) && (call.op == ReduceOp::max || call.op == ReduceOp::min))
      return order_in_place(call.op, mine, start);
    const bool widened = call.dtype == DType::i16;
    if (call.dtype == DType::boolean) mine.ne_(0);
    Tensors tensors{widened ? mine.to(at::kInt) : mine};
    connection_.run([&] { return start(tensors, gloo_op(call.dtype, call.op)); });
    if (call.op == ReduceOp::avg) tensors[0].div_(size());
    if (widened) mine.copy_(tensors[0]);
  }

  // Gloo's maximum and minimum lose a NaN, depending on which rank has it. So the greatest key is looked for: of the
  // numbers, or of the negative numbers.
  template <typename Start>
  void order_in_place(ReduceOp op, const at::Tensor& mine, const Start& start) {
    const at::Tensor numbers = mine.scalar_type() == at::kDouble ? mine : mine.to(at::kFloat);
    const bool least = op == ReduceOp::min;
    Tensors keys{keys_of(least ? -numbers : numbers)};
    connection_.run([&] { return start(keys, to_c10d(ReduceOp::max)); });
    const at::Tensor found = numbers_of(keys[0]);
    mine.copy_(least ? -found : found);
  }

  template <typename Start>
  void pass(const Start& start, Header& header) {
    Tensors head{at::from_blob(header.data(), {2}, at::kLong)};
    connection_.pass([&] { return start(head); });
  }
  template <typename Start>
  void pass_body(const Start& start, const Operation& call, const void* data) {
    if (call.dims.elements == 0) return;
    Tensors body{bytes(data, call.dims.elements, call.dtype)};
    connection_.pass([&] { return start(body); });
  }

  GlooConnection connection_;
};

}  // namespace

std::unique_ptr<Engine> make_gloo_engine(const std::shared_ptr<Store>& store, const GlooOptions& options) {
  return std::make_unique<GlooEngine>(store, options);
}

}  // namespace trireme::comm
