#include <net/if.h>
#include <torch/torch.h>

#include <algorithm>
#include <vector>

#include "trireme/comm/backends/gloo_connection_impl.h"
#include "trireme/comm/c10d_store.h"
#include "trireme/core/broken_pipe.h"
#include "trireme/core/clock.h"
#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::comm {
namespace {

constexpr Millis kCulpritPatience{2000};
constexpr Millis kPause{20};

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
  using Pg = c10d::ProcessGroupGloo;
  if (const auto name = chosen_interface()) return Pg::createDeviceForInterface(*name);
  return address.empty() ? Pg::createDefaultDevice() : Pg::createDeviceForHostname(address);
}

}  // namespace

GlooConnection::GlooConnection(std::shared_ptr<Store> store, const GlooOptions& options)
    : options_(options),
      store_(std::move(store)),
      notice_(
          store_, options.prefix + "aborted", [this](const Blame& blame) { end(blame); }, options.find_dead) {
  try {
    connect();
  } catch (const PeerError& error) {
    abort({error.rank(), error.reason()});
    throw PeerError(
        {.rank = error.rank(), .operation = "connect", .group = options_.member.group, .reason = error.reason()},
        fmt::format("rank {}: connecting the group: {}", called(options_.member.names, options_.member.me.rank),
                    error.reason()));
  }
}

void GlooConnection::connect() {
  const NoBrokenPipe for_its_threads;
  auto gloo = Pg::Options::create(options_.timeout);
  gloo->threads = 1;  // operations come one at a time
  guarded([&] {
    gloo->devices.push_back(make_device(options_.address));
    group_ = c10::make_intrusive<Pg>(make_c10d_store(store_, options_.prefix, options_.timeout),
                                     options_.member.me.rank, options_.member.me.size, gloo);
  });
}

// Gloo's threads may still wait for a rank that never comes; ending the group would wait for them.
GlooConnection::~GlooConnection() {
  if (aborted_)
    static_cast<void>(group_.release());
  else
    note_leaving();
}

void GlooConnection::run(const Start& start) {
  const AbortNotice::Waiting waiting(notice_);
  stop_if_aborted();
  guarded([&] {
    const WorkPtr work = start();
    const auto future = work->getFuture();
    future->addCallback([signal = signal_](c10::ivalue::Future&) {  // may be called when this object has gone
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
  stop_if_aborted();
}

void GlooConnection::pass(const Start& start) {
  const AbortNotice::Waiting waiting(notice_);
  const NoBrokenPipe guard;  // Gloo sends in the caller's thread
  stop_if_aborted();
  WorkPtr work;
  guarded([&] {
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
  stop_if_aborted();
}

void GlooConnection::abort(const Blame& blame) {
  if (end(blame)) notice_.give(blame);
}

// Ends what is under way on this rank; false when that has happened before.
bool GlooConnection::end(const Blame& blame) {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) return false;
    blame_ = blame;
    aborted_ = true;
    for (const WorkPtr& work : messages_) work->abort();
  }
  ended_.notify_all();
  return true;
}

void GlooConnection::stop_if_aborted() {
  const std::lock_guard lock(mutex_);
  if (aborted_) throw error_of(blame_);
}

template <typename F>
void GlooConnection::guarded(const F& f) {
  const Deadline deadline = Deadline::in(options_.timeout);
  try {
    f();
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {
    fail(error.what_without_backtrace(), deadline.passed());
  } catch (const std::exception& error) {
    fail(error.what(), deadline.passed());
  }
}

// A rank that still waits for this one learns less from the end of a connection.
void GlooConnection::note_leaving() noexcept {
  try {
    store_->set(left_key(options_.member.me.rank), "");
  } catch (const std::exception&) {  // the job may be over
  }
}

std::string GlooConnection::left_key(int rank) const {
  return fmt::format("{}left/{}", options_.prefix, rank);
}

Blame GlooConnection::find_leavers() noexcept {
  Blame result;
  std::vector<std::string> leavers;
  try {
    for (int rank = 0; rank < options_.member.me.size; ++rank) {
      if (!store_->try_get(left_key(rank))) continue;
      const int name = called(options_.member.names, rank);
      if (!result.rank) result.rank = name;
      leavers.push_back(fmt::format("rank {} left the group", name));
    }
  } catch (const std::exception&) {
  }
  result.reason = join(leavers, ", ");
  return result;
}

Blame GlooConnection::find_culprit() {
  Blame dead = options_.blame ? options_.blame() : Blame{};
  return dead.empty() ? find_leavers() : dead;
}

// A connection that ended means that a rank is going, or gone. The kernel takes a dead process's connections away in
// any order, so its beacon may answer a moment longer than Gloo's.
Blame GlooConnection::await_culprit() {
  const Deadline deadline = Deadline::in(kCulpritPatience);
  Blame culprit = find_culprit();
  std::unique_lock lock(mutex_);
  while (culprit.empty() && !deadline.passed() && !ended_.wait_for(lock, kPause, [&] { return aborted_.load(); })) {
    lock.unlock();
    culprit = find_culprit();
    lock.lock();
  }
  return culprit;
}

void GlooConnection::fail(const std::string& reason, bool timed_out) {
  Blame culprit = timed_out ? find_culprit() : await_culprit();
  // Prefer the first abort reason: later ones only report that the connection closed.
  if (const Blame given = notice_.given(); !given.empty()) end(given);
  stop_if_aborted();
  if (culprit.empty())
    culprit.reason =
        "all ranks live, so one is late, stopped or in another collective (a longer timeout: PADDLE_PG_TIMEOUT)";
  culprit.reason += "; gloo says: " + reason;
  throw error_of(culprit);
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

}  // namespace trireme::comm
