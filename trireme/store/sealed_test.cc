// Messages after the greeting: what is changed on the way closes one connection, and nobody reads along.
#include "trireme/store/sealed.h"

#include <gmock/gmock.h>

#include <functional>
#include <thread>

#include "trireme/core/thread_annotations.h"
#include "trireme/store/test_support.h"

namespace trireme::store {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using wire::Message;
using wire::Status;
using wire::Type;

const std::string kKey(Cipher::kKeySize, 'k');
const Message kSet{.type = Type::set, .parts = {"key", "value"}};

MessageReader reader_of(std::string_view sealed) {
  MessageReader reader;
  reader.open_with(kKey);
  reader.append(sealed);
  return reader;
}

std::string sealed(const Message& message) {
  return Sealer(kKey).seal(wire::encode(message));
}

TEST(Sealed, MessagesOfEverySizeSurviveTheTrip) {
  Sealer sealer(kKey);
  MessageReader reader = reader_of("");
  for (const size_t size : {size_t{0}, size_t{1}, kMaxRecord - 1, kMaxRecord, 3 * kMaxRecord + 5}) {
    const Message message{.type = Type::set, .parts = {"key", std::string(size, 'v')}};
    reader.append(sealer.seal(wire::encode(message)));
    EXPECT_EQ(reader.next(wire::kMaxPayload).message, message);
  }
  EXPECT_EQ(reader.unread(), 0u);
}

TEST(Sealed, BytesMayArriveOneByOne) {
  MessageReader reader = reader_of("");
  const std::string bytes = sealed(kSet);
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(reader.next(wire::kMaxPayload).status, Status::incomplete) << i;
    EXPECT_EQ(reader.unread(), i);
    reader.append(bytes.substr(i, 1));
  }
  EXPECT_EQ(reader.next(wire::kMaxPayload).message, kSet);
}

TEST(Sealed, AnyChangedByteIsNoticed) {
  const std::string bytes = sealed(kSet);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes + std::string(kMaxRecord, 'x');  // enough for a length that has grown
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_EQ(reader_of(changed).next(wire::kMaxPayload).status, Status::bad) << i;
  }
}

TEST(Sealed, LengthsAreCheckedFromTheirFourBytes) {
  using namespace std::string_literals;
  for (const std::string& length : {"\0\0\0\0"s, "\1\0\1\0"s, "\xff\xff\xff\xff"s})
    EXPECT_EQ(reader_of(length).next(wire::kMaxPayload).status, Status::bad);
}

TEST(Sealed, WhatCameBeforeABadRecordCounts) {
  MessageReader reader = reader_of(sealed(kSet) + sealed(kSet));  // the second repeats the first
  EXPECT_EQ(reader.next(wire::kMaxPayload).message, kSet);
  EXPECT_EQ(reader.next(wire::kMaxPayload).status, Status::bad);
  EXPECT_EQ(reader.next(wire::kMaxPayload).status, Status::bad);
}

TEST(Sealed, EachConnectionAndDirectionHasItsOwnKey) {
  const Token token = Token::random();
  const Greeting greeting{std::string(32, 's'), std::string(32, 'c'), "rank 3"};
  const SessionKeys keys = session_keys(token, greeting);
  EXPECT_EQ(keys.client, session_keys(token, greeting).client);
  EXPECT_NE(keys.client, keys.server);
  EXPECT_NE(keys.client, session_keys(Token::random(), greeting).client);
  EXPECT_NE(keys.client, session_keys(token, {std::string(32, 'S'), greeting.client_nonce, ""}).client);
  EXPECT_NE(keys.client, session_keys(token, {greeting.server_nonce, std::string(32, 'C'), ""}).client);
}

// Between one client and the server: keeps all bytes of both directions, and may change those of the server.
class Proxy {
 public:
  using Change = std::function<void(std::string&)>;

  explicit Proxy(const Endpoint& server, Change change_reply = {})
      : listener_(listen_tcp("127.0.0.1", 0)), change_reply_(std::move(change_reply)), thread_([this, server] {
          forward(UniqueFd(::accept(listener_.get(), nullptr, nullptr)), connect_tcp(server, Deadline::in(20s)));
        }) {}
  ~Proxy() { thread_.join(); }

  Endpoint endpoint() const { return {"127.0.0.1", port_of(local_address(listener_.get()))}; }
  std::string recorded() const {
    const std::lock_guard lock(mutex_);
    return recorded_;
  }

 private:
  // Until either side has closed.
  void forward(const UniqueFd& client, const UniqueFd& server) {
    pollfd ends[] = {{client.get(), POLLIN, 0}, {server.get(), POLLIN, 0}};
    while (::poll(ends, 2, 60'000) > 0)
      for (const size_t from : {0, 1})
        if (ends[from].revents && !pass(ends[from].fd, ends[1 - from].fd, from == 1)) return;
  }
  bool pass(int from, int to, bool is_reply) {
    std::string bytes(65536, '\0');
    const ssize_t n = ::recv(from, bytes.data(), bytes.size(), 0);
    if (n <= 0) return false;
    bytes.resize(static_cast<size_t>(n));
    if (is_reply && change_reply_) change_reply_(bytes);
    const std::lock_guard lock(mutex_);
    recorded_ += bytes;
    return ::send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }

  UniqueFd listener_;
  const Change change_reply_;
  mutable Mutex mutex_;
  std::string recorded_ TRIREME_GUARDED_BY(mutex_);
  std::thread thread_;
};

class SealedTest : public ::testing::Test {
 protected:
  RawClient admitted() {
    RawClient client(server_.endpoint());
    client.authenticate(token_);
    return client;
  }
  /// The server closes `client`, says so, and the others go on.
  void expect_closed(RawClient& client) {
    EXPECT_TRUE(client.closed());
    EXPECT_EQ(server_.counters().bad_messages, 1u);
    EXPECT_EQ(log_.count("closing 127.0.0.1: bad message: it was changed, repeated, swapped or cut on the way"), 1u);
    good_->set("still", "here");
    EXPECT_EQ(good_->try_get("stolen"), std::nullopt);
  }
  const std::string stolen_ = wire::encode({.type = Type::set, .parts = {"stolen", "value"}});

  CaughtLog log_;
  const Token token_ = Token::random();
  TcpStoreServer server_{listen_tcp("127.0.0.1", 0), {.token = token_}};
  const std::unique_ptr<TcpStore> good_ = join(server_, token_, "good");
};

TEST_F(SealedTest, AChangedRecordClosesItsClientOnly) {
  RawClient client = admitted();
  std::string record = client.sealed(stolen_);
  record[record.size() - Cipher::kTagSize - 1] ^= 1;
  client.send(record);
  expect_closed(client);
}

TEST_F(SealedTest, AReplayedRecordClosesItsClientOnly) {
  RawClient client = admitted();
  const std::string record = client.sealed(wire::encode({.type = Type::add, .number = 1, .parts = {"count"}}));
  client.send(record + record);
  expect_closed(client);
  EXPECT_EQ(good_->try_get("count"), "1");
}

TEST_F(SealedTest, ASwappedRecordClosesItsClientOnly) {
  RawClient client = admitted();
  const std::string first = client.sealed(wire::encode({.type = Type::time}));
  client.send(client.sealed(stolen_) + first);
  expect_closed(client);
}

TEST_F(SealedTest, ACutRecordClosesItsClientOnly) {
  RawClient client = admitted();
  const std::string record = client.sealed(stolen_);
  client.send(record.substr(0, record.size() - 1) + client.sealed(stolen_));
  expect_closed(client);
}

TEST_F(SealedTest, ALeftOutRecordClosesItsClientOnly) {
  RawClient client = admitted();
  client.sealed(wire::encode({.type = Type::time}));
  client.send(client.sealed(stolen_));
  expect_closed(client);
}

TEST_F(SealedTest, AClearMessageAfterTheGreetingClosesItsClientOnly) {
  RawClient client = admitted();
  client.send(stolen_);
  expect_closed(client);
}

TEST_F(SealedTest, ARecordOfAnotherConnectionClosesItsClientOnly) {
  RawClient other = admitted();
  RawClient client = admitted();
  client.send(other.sealed(stolen_));
  expect_closed(client);
}

TEST_F(SealedTest, WhoRecordsTheTrafficSeesNoKeyAndNoValue) {
  Proxy proxy(server_.endpoint());
  auto store = TcpStore::connect({.server = proxy.endpoint(), .token = token_, .name = "node 1"}, Deadline::in(20s));
  store->set("a secret key", "a secret value");
  EXPECT_EQ(store->try_get("a secret key"), "a secret value");
  store->set("large", std::string(4 * kMaxRecord, '?') + "a secret end");
  EXPECT_EQ(store->list("large").size(), 1u);
  store.reset();
  const std::string recorded = proxy.recorded();
  EXPECT_GT(recorded.size(), 8 * kMaxRecord);
  EXPECT_THAT(recorded, HasSubstr("node 1")) << "the greeting is in clear: this is the whole traffic";
  EXPECT_EQ(recorded.find("secret"), std::string::npos);
  EXPECT_EQ(recorded.find(token_.bytes()), std::string::npos);
}

TEST_F(SealedTest, AChangedReplyIsNoticed) {
  std::atomic<bool> change = false;
  Proxy proxy(server_.endpoint(), [&](std::string& bytes) { bytes.back() ^= static_cast<char>(change ? 1 : 0); });
  const auto store = TcpStore::connect({.server = proxy.endpoint(), .token = token_}, Deadline::in(20s));
  store->set("key", "value");
  change = true;
  EXPECT_THAT(message_of<PeerError>([&] { store->try_get("key"); }), HasSubstr("changed, repeated, swapped or cut"));
  EXPECT_EQ(good_->try_get("key"), "value");
}

}  // namespace
}  // namespace trireme::store
