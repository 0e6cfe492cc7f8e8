// shm_test_rank: one rank of process_test.
//
//   shm_test_rank HOST:PORT TOKEN RANK SIZE TIMEOUT_MS FILES WHAT
//
// WHAT is a collective, repeated until it fails (the message is printed; "running" before it), or `check N`: N rounds
// of all of them with results checked, "checked" at the end.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "trireme/comm/engine/shm/group.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/store/tcp_client.h"

namespace trireme::comm::shm {
namespace {

using namespace std::chrono_literals;

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

int number(const std::string& text) {
  return static_cast<int>(parse_int(text, 0, 1 << 30).value());
}

// A message to the next rank and one from the rank before: rank 0 sends first, the others receive first.
void pass_on(Group& group, const std::vector<float>& out, std::vector<float>& in) {
  const int next = (group.rank() + 1) % group.size(), before = (group.rank() + group.size() - 1) % group.size();
  if (group.rank() == 0) group.send(out.data(), out.size(), DType::f32, next);
  group.recv(in.data(), in.size(), DType::f32, before);
  if (group.rank() != 0) group.send(out.data(), out.size(), DType::f32, next);
}

// Where the others read it in place, results included.
void call_in_arena(Group& group) {
  constexpr size_t kCount = 300000;
  static auto* const data = static_cast<int32_t*>(Arena::of_process()->allocate(kCount * sizeof(int32_t)));
  std::fill_n(data, kCount, group.rank());
  group.all_reduce(data, kCount, DType::i32, ReduceOp::sum);
  const int sum = group.size() * (group.size() - 1) / 2;
  if (std::count(data, data + kCount, sum) != kCount) throw UsageError("a wrong sum");
}

// Several pieces long, so that most of the time is spent inside.
void call(Group& group, const std::string& what) {
  constexpr size_t kCount = 50000;
  const auto ranks = static_cast<size_t>(group.size());
  std::vector<float> data(kCount * ranks), other(kCount * ranks);
  if (what == "barrier") group.barrier();
  if (what == "all_reduce") group.all_reduce(data.data(), data.size(), DType::f32, ReduceOp::sum);
  if (what == "all_reduce_in_arena") call_in_arena(group);
  if (what == "small_all_reduce") group.all_reduce(data.data(), 8, DType::f32, ReduceOp::sum);
  if (what == "broadcast") group.broadcast(data.data(), data.size(), DType::f32, 0);
  const std::vector<size_t> counts(ranks, kCount);
  if (what == "all_gather") group.all_gather(data.data(), counts, DType::f32, other.data());
  if (what == "reduce") group.reduce(data.data(), data.size(), DType::f32, ReduceOp::sum, 1);
  if (what == "gather") group.gather(data.data(), counts, DType::f32, other.data(), 1);
  if (what == "scatter") group.scatter(data.data(), counts, DType::f32, other.data(), 1);
  if (what == "all_to_all") group.all_to_all(data.data(), counts, DType::f32, other.data(), counts);
  if (what == "ring") pass_on(group, data, other);
  if (what == "reduce_scatter") group.reduce_scatter(data.data(), counts, DType::f32, ReduceOp::sum, other.data());
}

void repeat_until_failure(Group& group, const std::string& what) {
  call(group, what);
  say("running");
  for (;;) call(group, what);
}

void check(Group& group, int rounds) {
  const int sum = group.size() * (group.size() - 1) / 2;
  for (int i = 0; i < rounds; ++i) {
    std::vector<int32_t> data(static_cast<size_t>(i % 7) * 20000 + 1, group.rank() + i);
    group.all_reduce(data.data(), data.size(), DType::i32, ReduceOp::sum);
    for (const int32_t value : data)
      if (value != sum + i * group.size()) throw UsageError("round {}: {} is wrong", i, value);
    group.broadcast(data.data(), data.size(), DType::i32, i % group.size());
    std::vector<float> mine(static_cast<size_t>(i % 7) * 20000, static_cast<float>(group.rank())), theirs(mine.size());
    pass_on(group, mine, theirs);
    const auto before = static_cast<float>((group.rank() + group.size() - 1) % group.size());
    if (theirs != std::vector<float>(mine.size(), before)) throw UsageError("round {}: a wrong message", i);
    group.barrier();
  }
  say("checked");
}

int run(const std::vector<std::string>& arguments) {
  std::shared_ptr<Store> store = store::TcpStore::connect(
      {.server = parse_endpoint(arguments.at(1), "server"), .token = Token::from_bytes(from_hex(arguments.at(2)))},
      Deadline::in(30s));
  Group::Options options{.name = "world", .member = {.me = {number(arguments.at(3)), number(arguments.at(4))}}};
  options.piece_bytes = 4096;
  options.timeout = Millis(number(arguments.at(5)));
  options.files = {arguments.at(6) == "named" ? FileKind::named : FileKind::anonymous};
  Arena::make_for_process({.capacity = size_t{64} << 20, .keep = size_t{8} << 20});
  const auto group = Group::join(store, options, Deadline::in(30s));
  const std::string& what = arguments.at(7);
  if (what == "check")
    check(*group, number(arguments.at(8)));
  else
    repeat_until_failure(*group, what);
  return 0;
}

}  // namespace
}  // namespace trireme::comm::shm

int main(int argc, char** argv) {
  try {
    return trireme::comm::shm::run(std::vector<std::string>(argv, argv + argc));
  } catch (const trireme::Error& error) {
    trireme::comm::shm::say(error.what());
    return error.exit_code();
  }
}
