// Gloo moves equal parts only; uneven ones are padded to the longest here. It joins neither bools nor 16-bit integers
// and knows no average; these are mapped to what it does.
#include "trireme/comm/backends/gloo.h"

#include <net/if.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <set>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "trireme/comm/abort_notice.h"
#include "trireme/comm/c10d_store.h"
#include "trireme/core/broken_pipe.h"
#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme {
namespace {

using Pg = c10d::ProcessGroupGloo;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return at::kFloat;
    case DType::f64:
      return at::kDouble;
    case DType::f16:
      return at::kHalf;
    case DType::bf16:
      return at::kBFloat16;
    case DType::i8:
      return at::kChar;
    case DType::i16:
      return at::kShort;
    case DType::i32:
      return at::kInt;
    case DType::i64:
      return at::kLong;
    case DType::u8:
    case DType::boolean:
      return at::kByte;
  }
  throw std::logic_error("no such DType");
}

// sum and max of bools are "or", prod and min are "and".
ReduceOp for_bytes(DType dtype, ReduceOp op) {
  if (dtype != DType::boolean) return op;
  return op == ReduceOp::sum || op == ReduceOp::max ? ReduceOp::max : ReduceOp::min;
}

// Gloo has no average: the caller divides the sum.
c10d::ReduceOp to_gloo(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return c10d::ReduceOp::SUM;
    case ReduceOp::prod:
      return c10d::ReduceOp::PRODUCT;
    case ReduceOp::min:
      return c10d::ReduceOp::MIN;
    case ReduceOp::max:
      return c10d::ReduceOp::MAX;
  }
  throw std::logic_error("no such ReduceOp");
}

at::Tensor view(const void* data, size_t elements, DType dtype) {
  return at::from_blob(const_cast<void*>(data), {static_cast<int64_t>(elements)}, scalar_type(dtype));
}

// Bytes, where nothing is added: Gloo moves every type then.
at::Tensor bytes(const void* data, size_t elements, DType dtype) {
  return at::from_blob(const_cast<void*>(data), {static_cast<int64_t>(elements * shm::size_of(dtype))}, at::kByte);
}

size_t sum(Engine::Counts counts) {
  return std::accumulate(counts.begin(), counts.end(), size_t{0});
}

// NCCL's variable may also be a list, a prefix or what not to take (^docker0,lo); only a plain name says something
// here.
std::optional<std::string> interface_for_nccl() {
  auto name = env::get_nonempty("NCCL_SOCKET_IFNAME");
  return name && ::if_nametoindex(name->c_str()) != 0 ? name : std::nullopt;
}

std::optional<std::string> chosen_interface() {
  auto name = env::get_nonempty("GLOO_SOCKET_IFNAME");
  return name ? name : interface_for_nccl();
}

std::shared_ptr<gloo::transport::Device> make_device(const std::string& address) {
  if (const auto name = chosen_interface()) return Pg::createDeviceForInterface(*name);
  return address.empty() ? Pg::createDefaultDevice() : Pg::createDeviceForHostname(address);
}

class GlooEngine final : public Engine {
 public:
  GlooEngine(const std::shared_ptr<Store>& store, const GlooOptions& options)
      : options_(options),
        store_(store),
        notice_(
            store, options.prefix + "aborted", [this](const std::string& reason) { end(reason); }, options.find_dead) {
    const NoBrokenPipe for_its_threads;
    auto gloo = Pg::Options::create(options.timeout);
    gloo->threads = 1;  // operations come one at a time
    guarded("connect", [&] {
      gloo->devices.push_back(make_device(options.address));
      group_ = c10::make_intrusive<Pg>(make_c10d_store(store, options.prefix, options.timeout), options.me.rank,
                                       options.me.size, gloo);
    });
  }

  // Gloo's threads may still wait for a rank that never comes; ending the group would wait for them.
  ~GlooEngine() override {
    if (aborted_)
      static_cast<void>(group_.release());
    else
      say_goodbye();
  }

  const char* name() const override { return "gloo"; }
  RankInfo me() const override { return options_.me; }

  void all_reduce(void* data, size_t elements, DType dtype, ReduceOp op) override {
    all_reduce_tensor(view(data, elements, dtype), dtype, op);
  }

  void reduce(void* data, size_t elements, DType dtype, ReduceOp op, int root) override {
    at::Tensor mine = view(data, elements, dtype);
    if (me().rank != root) mine = mine.clone();  // Gloo uses the others' memory for partial results
    reduce_in_place("reduce", mine, dtype, op, [&](Tensors& tensors, const c10d::ReduceOp& gloo_op) {
      return group_->reduce(tensors, {.reduceOp = gloo_op, .rootRank = root});
    });
  }

  void broadcast(void* data, size_t elements, DType dtype, int root) override {
    if (elements == 0) return;
    Tensors tensors{bytes(data, elements, dtype)};
    run("broadcast", [&] { return group_->broadcast(tensors, {.rootRank = root}); });
  }

  void all_gather(const void* input, Counts counts, DType dtype, void* output) override {
    const Padded padded(counts, dtype);
    if (padded.longest == 0) return;
    Tensors inputs{padded.part(input, counts[rank()])};
    at::Tensor all = at::empty({static_cast<int64_t>(padded.longest * counts.size())}, at::kByte);
    run("all_gather", [&] { return group_->_allgather_base(all, inputs[0]); });
    padded.unpad(all, counts, output);
  }

  void gather(const void* input, Counts counts, DType dtype, void* output, int root) override {
    const Padded padded(counts, dtype);
    if (padded.longest == 0) return;
    Tensors inputs{padded.part(input, counts[rank()])};
    at::Tensor all;
    std::vector<Tensors> outputs;
    if (me().rank == root) {
      all = at::empty({static_cast<int64_t>(counts.size()), static_cast<int64_t>(padded.longest)}, at::kByte);
      outputs.push_back(all.unbind(0));
    }
    run("gather", [&] { return group_->gather(outputs, inputs, {.rootRank = root}); });
    if (me().rank == root) padded.unpad(all, counts, output);
  }

  void scatter(const void* input, Counts counts, DType dtype, void* output, int root) override {
    const Padded padded(counts, dtype);
    if (padded.longest == 0) return;
    std::vector<Tensors> inputs;
    if (me().rank == root) inputs.push_back(padded.pad(input, counts));
    Tensors outputs{at::empty({static_cast<int64_t>(padded.longest)}, at::kByte)};
    run("scatter", [&] { return group_->scatter(outputs, inputs, {.rootRank = root}); });
    copy(output, outputs[0].data_ptr(), counts[rank()] * shm::size_of(dtype));
  }

  // Gloo's own does no more than this.
  void reduce_scatter(const void* input, Counts counts, DType dtype, ReduceOp op, void* output) override {
    const size_t width = shm::size_of(dtype);
    const at::Tensor all = view(input, sum(counts), dtype).clone();
    all_reduce_tensor(all, dtype, op);
    const auto* result = static_cast<const std::byte*>(all.data_ptr());
    copy(output, result + sum(counts.first(rank())) * width, counts[rank()] * width);
  }

  void all_to_all(const void* input, Counts sent, DType dtype, void* output, Counts received) override {
    at::Tensor from = bytes(input, sum(sent), dtype);
    at::Tensor to = bytes(output, sum(received), dtype);
    std::vector<int64_t> from_lengths, to_lengths;
    for (const size_t count : sent) from_lengths.push_back(static_cast<int64_t>(count * shm::size_of(dtype)));
    for (const size_t count : received) to_lengths.push_back(static_cast<int64_t>(count * shm::size_of(dtype)));
    run("all_to_all", [&] { return group_->alltoall_base(to, from, to_lengths, from_lengths); });
  }

  void barrier() override {
    run("barrier", [&] { return group_->barrier(); });
  }

  void send(const void* data, size_t elements, DType dtype, int to) override {
    Header header = header_of(elements, dtype);
    message(
        "send", to, [&](Tensors& tensors) { return group_->send(tensors, to, kTag); }, header, data, elements, dtype,
        true);
  }

  void recv(void* data, size_t elements, DType dtype, int from) override {
    Header header = header_of(elements, dtype);
    message(
        "recv", from, [&](Tensors& tensors) { return group_->recv(tensors, from, kTag); }, header, data, elements,
        dtype, false);
  }

  void abort(std::string_view reason) override {
    const std::string told = fmt::format("rank {} aborted the group: {}", me().rank, reason);
    if (end(told)) notice_.give(told);
  }

 private:
  static constexpr int kTag = 1;
  static constexpr Millis kLastMoment{2000};
  static constexpr Millis kPause{20};
  using Header = std::array<int64_t, 2>;  // elements, type: sent before each message, so that a wrong size is an error

  // Equal parts, as long as the longest.
  struct Padded {
    Padded(Counts counts, DType dtype)
        : width(shm::size_of(dtype)), longest(*std::max_element(counts.begin(), counts.end()) * width) {}
    at::Tensor part(const void* data, size_t elements) const {
      at::Tensor result = at::zeros({static_cast<int64_t>(longest)}, at::kByte);
      copy(result.data_ptr(), data, elements * width);
      return result;
    }
    Tensors pad(const void* data, Counts counts) const {
      Tensors parts;
      const auto* from = static_cast<const std::byte*>(data);
      for (const size_t count : counts) {
        parts.push_back(part(from, count));
        from += count * width;
      }
      return parts;
    }
    void unpad(const at::Tensor& all, Counts counts, void* output) const {
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

  static void copy(void* to, const void* from, size_t size) {
    if (size != 0 && to != from) std::memmove(to, from, size);
  }
  static Header header_of(size_t elements, DType dtype) {
    return {static_cast<int64_t>(elements), static_cast<int64_t>(dtype)};
  }
  size_t rank() const { return static_cast<size_t>(me().rank); }

  void all_reduce_tensor(const at::Tensor& mine, DType dtype, ReduceOp op) {
    reduce_in_place("all_reduce", mine, dtype, op, [&](Tensors& tensors, const c10d::ReduceOp& gloo_op) {
      return group_->allreduce(tensors, {.reduceOp = gloo_op});
    });
  }

  // Memory of this call's own must be the tensor's: an operation that was given up may still be under way inside Gloo.
  template <typename Start>
  void reduce_in_place(const char* what, const at::Tensor& mine, DType dtype, ReduceOp op, const Start& start) {
    if (mine.numel() == 0) return;
    const bool widened = dtype == DType::i16;
    if (dtype == DType::boolean) mine.ne_(0);
    Tensors tensors{widened ? mine.to(at::kInt) : mine};
    run(what, [&] { return start(tensors, to_gloo(for_bytes(dtype, op))); });
    if (op == ReduceOp::avg) tensors[0].div_(me().size);
    if (widened) mine.copy_(tensors[0]);
  }

  // A message is its header and, when both sides agree, its data.
  template <typename Start>
  void message(const char* what, int peer, const Start& start, Header& header, const void* data, size_t elements,
               DType dtype, bool outgoing) {
    const Header mine = header;
    Tensors head{at::from_blob(header.data(), {2}, at::kLong)};
    pass(what, [&] { return start(head); });
    if (!outgoing && header != mine) {
      const std::string text =
          fmt::format("rank {}: recv of {}[{}] from rank {}, which has sent {}[{}]", me().rank, shm::to_string(dtype),
                      elements, peer, shm::to_string(static_cast<DType>(header[1])), header[0]);
      if (end(text)) notice_.give(text);  // the sender waits for us to take the rest
      throw UsageError("{}", text);
    }
    if (elements == 0) return;
    Tensors body{bytes(data, elements, dtype)};
    pass(what, [&] { return start(body); });
  }

  // Waits for a collective in a way that abort() can end.
  template <typename Start>
  void run(const char* what, const Start& start) {
    const AbortNotice::Waiting waiting(notice_);
    stop_if_aborted(what);
    guarded(what, [&] {
      const WorkPtr work = start();
      const auto future = work->getFuture();
      future->addCallback([signal = signal_](c10::ivalue::Future&) {  // may be called when this engine has gone
        const std::lock_guard lock(signal->mutex);
        signal->ended.notify_all();
      });
      {
        std::unique_lock lock(mutex_);
        ended_.wait(lock, [&] { return aborted_ || future->completed(); });
      }
      if (!future->completed()) return;
      work->wait();
    });
    stop_if_aborted(what);
  }

  // The same for a message; Gloo ends these itself.
  template <typename Start>
  void pass(const char* what, const Start& start) {
    const AbortNotice::Waiting waiting(notice_);
    const NoBrokenPipe guard;  // Gloo sends in the caller's thread
    stop_if_aborted(what);
    WorkPtr work;
    guarded(what, [&] {
      work = start();
      {
        const std::lock_guard lock(mutex_);
        messages_.insert(work);
        if (aborted_) work->abort();  // between the look above and here
      }
      work->wait();
    });
    {
      const std::lock_guard lock(mutex_);
      messages_.erase(work);
    }
    stop_if_aborted(what);
  }

  // Ends what is under way on this rank; false when that has happened before.
  bool end(const std::string& reason) {
    {
      const std::lock_guard lock(mutex_);
      if (aborted_) return false;
      reason_ = reason;
      aborted_ = true;
      for (const WorkPtr& work : messages_) work->abort();
    }
    ended_.notify_all();
    return true;
  }

  void stop_if_aborted(const char* what) {
    const std::lock_guard lock(mutex_);
    if (aborted_) throw PeerError("rank {}: {}: {}", me().rank, what, reason_);
  }

  template <typename F>
  void guarded(const char* what, const F& f) {
    try {
      f();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      fail(what, error.what());
    }
  }

  // To a rank that still waits for this one, the end of a connection says less.
  void say_goodbye() noexcept {
    try {
      store_->set(left_key(me().rank), "");
    } catch (const std::exception&) {  // the job may be over
    }
  }
  std::string left_key(int rank) const { return fmt::format("{}left/{}", options_.prefix, rank); }
  std::string find_leavers() noexcept {
    std::vector<std::string> leavers;
    try {
      for (int rank = 0; rank < me().size; ++rank)
        if (store_->try_get(left_key(rank))) leavers.push_back(fmt::format("rank {} left the group", rank));
    } catch (const std::exception&) {
    }
    return join(leavers, ", ");
  }
  std::string find_culprit() {
    const std::string dead = options_.blame ? options_.blame() : "";
    return dead.empty() ? find_leavers() : dead;
  }
  // A connection that ended means that someone is going, or gone. The kernel takes a dead process's connections away in
  // any order, so its beacon may answer a moment longer than Gloo's.
  std::string await_culprit() {
    const Deadline deadline = Deadline::in(kLastMoment);
    std::string who = find_culprit();
    std::unique_lock lock(mutex_);
    while (who.empty() && !deadline.passed() && !ended_.wait_for(lock, kPause, [&] { return aborted_.load(); })) {
      lock.unlock();
      who = find_culprit();
      lock.lock();
    }
    return who;
  }

  [[noreturn]] void fail(const char* what, const std::string& reason) {
    const bool timed_out = reason.find("imed out") != std::string::npos;
    const std::string who = timed_out ? find_culprit() : await_culprit();
    // The first who gave up knows most: the others see only that he has gone too.
    if (const std::string told = notice_.given(); !told.empty()) end(told);
    stop_if_aborted(what);
    const std::string first_line = reason.substr(0, reason.find('\n'));
    const std::string text =
        fmt::format("{} by gloo failed: {}{}", what,
                    who.empty() ? "all ranks live, so one is late, stopped or in another collective (a longer timeout: "
                                  "PADDLE_PG_TIMEOUT); gloo says: "
                                : who + "; gloo says: ",
                    first_line);
    if (end(text)) notice_.give(fmt::format("rank {}: {}", me().rank, text));
    throw PeerError("rank {}: {}", me().rank, text);
  }

  const GlooOptions options_;
  const std::shared_ptr<Store> store_;
  c10::intrusive_ptr<Pg> group_;
  struct Signal {
    std::mutex mutex;
    std::condition_variable ended;
  };
  const std::shared_ptr<Signal> signal_ = std::make_shared<Signal>();
  std::mutex& mutex_ = signal_->mutex;
  std::condition_variable& ended_ = signal_->ended;
  std::set<WorkPtr> messages_;         // GUARDED_BY(mutex_)
  std::string reason_;                 // GUARDED_BY(mutex_)
  std::atomic<bool> aborted_ = false;  // written under mutex_
  AbortNotice notice_;                 // the last: its thread uses all the others
};

}  // namespace

std::unique_ptr<Engine> make_gloo_engine(const std::shared_ptr<Store>& store, const GlooOptions& options) {
  return std::make_unique<GlooEngine>(store, options);
}

std::optional<std::string> why_no_gloo() {
  return std::nullopt;
}

std::string describe_gloo_interface(const std::string& address) {
  if (const auto name = env::get_nonempty("GLOO_SOCKET_IFNAME"))
    return fmt::format("interface {} (GLOO_SOCKET_IFNAME)", *name);
  if (const auto name = interface_for_nccl()) return fmt::format("interface {} (NCCL_SOCKET_IFNAME)", *name);
  return address.empty() ? "the address of the host name" : fmt::format("address {}", address);
}

}  // namespace trireme
