#include "trireme/launch/live/live_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>

#include "trireme/core/error.h"
#include "trireme/launch/live/test_log.h"
#include "trireme/store/memory_store.h"

namespace trireme::launch {
namespace {

using testing::HasSubstr;

constexpr auto kTime = std::chrono::seconds(20);

// As the server of a job's store: a list is bounded.
class BoundedStore : public store::MemoryStore {
 public:
  explicit BoundedStore(size_t max_list) : max_list_(max_list) {}
  std::map<std::string, std::string> list(const std::string& prefix) override {
    auto entries = MemoryStore::list(prefix);
    size_t bytes = 0;
    for (const auto& [key, value] : entries) bytes += value.size();
    if (bytes > max_list_) throw UsageError("[store] a list has {} bytes", bytes);
    return entries;
  }

 private:
  const size_t max_list_;
};

NodeView trace_of_node(int node) {
  return {.node = node,
          .ranks = {{.rank = node, .host = "beta"}},
          .timelines = {{.rank = node, .spans = {{.start = 100, .length = 50, .kind = SpanKind::backward}}}}};
}

void send_traces(const std::shared_ptr<Store>& store, int nodes) {
  for (int node = 1; node < nodes; ++node) {
    LiveExchange exchange({.store = store, .node = node, .nodes = nodes});
    exchange.publish(NodeView{.node = node});
    exchange.publish_trace(trace_of_node(node));
    exchange.finish(Deadline::in(kTime));
  }
}

TEST(LiveExchange, ATraceIsTakenOutOfTheStore) {
  const auto store = std::make_shared<store::MemoryStore>();
  send_traces(store, 3);
  LiveExchange node0({.store = store, .nodes = 3});
  node0.finish(Deadline::in(kTime));
  const auto traces = node0.take_traces();
  ASSERT_EQ(traces.size(), 2u);
  EXPECT_EQ(traces.at(2).timelines.at(0).spans.at(0).length, 50);
  EXPECT_TRUE(store->list("live/0/trace").empty());
  EXPECT_EQ(node0.received().size(), 2u) << "the states stay";
  EXPECT_TRUE(node0.take_traces().empty());
}

TEST(LiveExchange, TheTracesOfAllNodesMayBeLongerThanAList) {
  const size_t one = to_json(trace_of_node(1)).size();
  const auto store = std::make_shared<BoundedStore>(2 * one);
  send_traces(store, 6);
  LiveExchange node0({.store = store, .nodes = 6});
  node0.finish(Deadline::in(kTime));
  EXPECT_EQ(node0.take_traces().size(), 5u);
}

void wait_for(LogLines& lines, const std::string& text) {
  const Deadline deadline = Deadline::in(kTime);
  while (lines.text().find(text) == std::string::npos && !deadline.passed()) std::this_thread::yield();
  EXPECT_THAT(lines.text(), HasSubstr(text));
}

TEST(LiveExchange, SaysWhyItEnded) {
  LogLines lines;
  const auto store = std::make_shared<BoundedStore>(1);
  store->set("live/0/node/1", to_json(NodeView{.node = 1}));
  const LiveExchange node0({.store = store, .nodes = 2});
  wait_for(lines,
           "warning: the page and progress.json no longer show what the ranks of other nodes do: [store] a list has ");
}

class StoreWithoutMemory : public store::MemoryStore {
 public:
  std::optional<std::string> try_get(const std::string&) override { throw std::bad_alloc(); }
};

TEST(LiveExchange, AnyErrorOfItsThreadIsLogged) {
  LogLines lines;
  const LiveExchange node1({.store = std::make_shared<StoreWithoutMemory>(), .node = 1, .nodes = 2});
  wait_for(lines, "warning: node 0 no longer shows what the ranks of this node do: std::bad_alloc");
}

}  // namespace
}  // namespace trireme::launch
