#include <cstring>

#include "trireme/comm/engine/mpi/exchange_impl.h"
#include "trireme/core/deadline.h"

namespace trireme::comm::mpi {
namespace {

constexpr int kDataTag = 0;  // of messages inside collectives

}  // namespace

template <typename Visit>
void Exchange::for_peers(Visit visit) const {
  for (int step = 1; step < me_.size; ++step) visit((me_.rank + step) % me_.size);
}

void Exchange::run(const Stretches& sent, const Stretches& received, Deadline deadline) {
  copy_own(sent[static_cast<size_t>(me_.rank)], received[static_cast<size_t>(me_.rank)]);
  std::vector<MPI_Request> requests;
  std::vector<size_t> expected;  // bytes; of receives, which come first
  std::vector<int> peers;
  const auto post = [&](int peer, auto call) {
    const auto turn = Library::get().turn();
    check(call(&requests.emplace_back(MPI_REQUEST_NULL)), "exchange of messages");
    peers.push_back(peer);
  };
  for_peers([&](int peer) {
    const Stretch& part = received[static_cast<size_t>(peer)];
    for_messages(part.size, 1, limit_, [&](size_t begin, size_t count) {
      expected.push_back(count);
      post(peer, [&](MPI_Request* request) {
        return MPI_Irecv(part.to + begin, static_cast<int>(count), MPI_BYTE, peer, kDataTag, group_.collectives(),
                         request);
      });
    });
  });
  for_peers([&](int peer) {
    const Stretch& part = sent[static_cast<size_t>(peer)];
    for_messages(part.size, 1, limit_, [&](size_t begin, size_t count) {
      post(peer, [&](MPI_Request* request) {
        return MPI_Isend(part.from + begin, static_cast<int>(count), MPI_BYTE, peer, kDataTag, group_.collectives(),
                         request);
      });
    });
  });
  std::vector<MPI_Status> statuses(requests.size());
  group_.wait(requests, statuses, deadline);
  check_received(statuses, expected, peers);
}

void Exchange::copy_own(const Stretch& from, const Stretch& to) const {
  if (from.size != to.size)
    throw Disagreement("rank {} sends itself {} bytes but expects {}", me_.rank, from.size, to.size);
  if (from.size != 0 && from.from != to.to) std::memcpy(to.to, from.from, from.size);
}

void Exchange::check_received(const std::vector<MPI_Status>& statuses, const std::vector<size_t>& expected,
                              const std::vector<int>& peers) const {
  for (size_t i = 0; i < statuses.size(); ++i) {
    int error_class = MPI_SUCCESS;
    MPI_Error_class(statuses[i].MPI_ERROR, &error_class);
    if (error_class == MPI_ERR_TRUNCATE)
      throw Disagreement("rank {} sent more than the {} bytes that rank {} expects", peers[i], expected[i], me_.rank);
    check(statuses[i].MPI_ERROR, "exchange of messages");
    int size = 0;
    if (i >= expected.size()) continue;
    check(MPI_Get_count(&statuses[i], MPI_BYTE, &size), "MPI_Get_count");
    if (static_cast<size_t>(size) != expected[i])
      throw Disagreement("rank {} sent {} bytes, rank {} expects {}", peers[i], size, me_.rank, expected[i]);
  }
}

}  // namespace trireme::comm::mpi
